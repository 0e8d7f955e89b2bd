#include "model/pooler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "backend/dispatch.h"
#include "base/json.h"
#include "model/checkpoint.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxTokenizerBytes = 256u << 20;
constexpr std::int64_t kMaxLabels = 1 << 16;

[[noreturn]] void refuse(const fs::path& model_dir, const std::string& what) {
  throw Failure(Error{ErrorCode::invalid_argument, model_dir.string() + ": " + what,
                      "PoolingOptions::convert"});
}

// The first of the names that is published.
const Checkpoint::Entry* find_any(const Checkpoint& files,
                                  std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (const auto* entry = files.find(name)) return entry;
  }
  return nullptr;
}

// Rows [first, first + count) of a matrix, or all of a vector.
std::vector<float> read_rows(const Checkpoint::Entry& entry, std::int64_t first,
                             std::int64_t count) {
  const StoredTensor& tensor = *entry.tensor;
  const std::int64_t width = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
  std::vector<float> out(static_cast<std::size_t>(count * width));
  dispatch_float(tensor.dtype, [&]<class T>(Type<T>) {
    const auto* const from = reinterpret_cast<const T*>(entry.file->data(tensor)) + first * width;
    std::transform(from, from + out.size(), out.begin(),
                   [](T value) { return static_cast<float>(value); });
  });
  return out;
}

// As tokenizer.json spells it.
std::int64_t token_id(const Json& tokenizer, const std::string& text, const fs::path& model_dir) {
  constexpr IntRange kIds{0, (1 << 28) - 1};
  if (const auto model = tokenizer.object({"model"})) {
    if (const auto vocab = model->object({"vocab"})) {
      if (const auto id = vocab->integer({text}, kIds)) return *id;
    }
  }
  refuse(model_dir, "tokenizer.json has no token \"" + text + "\" (classifier_from_token)");
}

}  // namespace

Pooler::Pooler(PoolingConfig config, const ModelConfig& model, const fs::path& model_dir,
               LoadFormat format)
    : config_(std::move(config)), hidden_size_(model.hidden_size) {
  if (config_.task != PoolingTask::score) return;
  if (format == LoadFormat::dummy) {
    const float weight = 1.f / static_cast<float>(hidden_size_);
    labels_ = {std::vector<float>(static_cast<std::size_t>(hidden_size_), weight), {}, 1};
  } else if (config_.classifier_tokens.empty()) {
    load_head(model, model_dir);
  } else {
    load_token_head(model_dir);
  }
}

// A layer with tanh and the labels (BERT, RoBERTa), or the labels alone.
void Pooler::load_head(const ModelConfig& model, const fs::path& model_dir) {
  const Checkpoint files(model_dir);
  const auto load = [&](const Checkpoint::Entry& weight, const Checkpoint::Entry* bias) {
    const auto& shape = weight.tensor->shape;
    if (shape.size() != 2 || shape[1] != model.hidden_size || shape[0] > kMaxLabels)
      refuse(model_dir, "its classification head is " + shape_text(shape) + ", not [labels, " +
                            std::to_string(model.hidden_size) + "]");
    Dense dense{read_rows(weight, 0, shape[0]), {}, static_cast<int>(shape[0])};
    if (bias != nullptr) {
      if (bias->tensor->shape != std::vector{shape[0]})
        refuse(model_dir, "its classification head's bias is not [labels]");
      dense.bias = read_rows(*bias, 0, shape[0]);
    }
    return dense;
  };
  const auto* labels =
      find_any(files, {"classifier.out_proj.weight", "classifier.weight", "score.weight"});
  if (labels == nullptr)
    refuse(model_dir,
           "the checkpoint has no classification head (score.weight, "
           "classifier.weight); where tokens are the classes, say which with "
           "PoolingOptions::classifier_tokens '{\"classifier_from_token\": [\"no\", \"yes\"]}'");
  labels_ = load(*labels, find_any(files, {"classifier.out_proj.bias", "classifier.bias",
                                           "score.bias"}));
  if (const auto* dense = find_any(files, {"classifier.dense.weight", "bert.pooler.dense.weight"}))
    hidden_layer_ = load(*dense, find_any(files, {"classifier.dense.bias",
                                                  "bert.pooler.dense.bias"}));
}

// One label: the logit of the second token less that of the first.
void Pooler::load_token_head(const fs::path& model_dir) {
  if (config_.classifier_tokens.size() != 2)
    refuse(model_dir, "classifier_from_token must name two tokens, the second of them for yes");
  const Checkpoint files(model_dir);
  const auto* head = find_any(files, {"lm_head.weight"});
  if (head == nullptr)  // tied
    head = find_any(files, {"model.embed_tokens.weight", "embed_tokens.weight"});
  if (head == nullptr) refuse(model_dir, "the checkpoint has no vocabulary head");
  const JsonDocument document =
      JsonDocument::read(model_dir / "tokenizer.json", kMaxTokenizerBytes);
  labels_.rows = 1;
  for (const std::string& token : config_.classifier_tokens) {
    const std::int64_t id = token_id(document.object(), token, model_dir);
    if (id >= head->tensor->shape.at(0))
      refuse(model_dir, "token \"" + token + "\" has no row in the vocabulary head");
    const auto row = read_rows(*head, id, 1);
    if (labels_.weight.empty()) labels_.weight.assign(row.size(), 0.f);
    const float sign = &token == &config_.classifier_tokens.back() ? 1.f : -1.f;
    for (std::size_t i = 0; i < row.size(); ++i) labels_.weight[i] += sign * row[i];
  }
}

int Pooler::size() const { return labels_.rows > 0 ? labels_.rows : hidden_size_; }

std::size_t Pooler::bytes() const {
  return sizeof(float) * (hidden_layer_.weight.size() + hidden_layer_.bias.size() +
                          labels_.weight.size() + labels_.bias.size());
}

std::vector<float> Pooler::apply(const Dense& dense, std::span<const float> x) {
  std::vector<float> out = dense.bias;
  out.resize(static_cast<std::size_t>(dense.rows));
  for (std::size_t r = 0; r < out.size(); ++r) {
    const auto row = std::span(dense.weight).subspan(r * x.size(), x.size());
    out[r] += std::inner_product(x.begin(), x.end(), row.begin(), 0.f);
  }
  return out;
}

std::vector<float> Pooler::finish(std::span<const float> pooled) const {
  if (labels_.rows == 0) return {pooled.begin(), pooled.end()};
  if (hidden_layer_.rows == 0) return apply(labels_, pooled);
  std::vector<float> hidden = apply(hidden_layer_, pooled);
  for (float& value : hidden) value = std::tanh(value);
  return apply(labels_, hidden);
}

void pool_rows(PoolingType type, DType dtype, const void* rows, int num_tokens, int hidden_size,
               std::span<float> out) {
  dispatch_float(dtype, [&]<class T>(Type<T>) {
    const auto* const x = static_cast<const T*>(rows);
    const int first = type == PoolingType::last ? num_tokens - 1 : 0;
    const int last = type == PoolingType::cls ? 0 : num_tokens - 1;
    std::ranges::fill(out, 0.f);
    for (int t = first; t <= last; ++t) {
      const T* const row = x + static_cast<std::int64_t>(t) * hidden_size;
      for (int i = 0; i < hidden_size; ++i)
        out[static_cast<std::size_t>(i)] += static_cast<float>(row[i]);
    }
    const auto count = static_cast<float>(last - first + 1);
    for (float& value : out) value /= count;
  });
}

}  // namespace quire
