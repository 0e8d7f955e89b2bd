#include "model/unused_tensors.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <optional>
#include <vector>

#include "base/error.h"
#include "model/architectures.h"
#include "model/gguf/tensors.h"

namespace quire {

namespace {

// Parts of other modules, and what training leaves behind.
constexpr std::string_view kOthers[] = {
    "vision",      "visual", "audio",      "image",          "multi_modal",
    "projector",   "mtp.",   "rotary_emb", "rotary_pos_emb", "position_ids",
    "masked_bias", "t2d",    "d2t"};
constexpr std::string_view kHeads[] = {"lm_head.", "score.", "classifier.",
                                       "pooler.",  "cls.",   "qa_outputs."};
constexpr std::string_view kScales[] = {"_scale", "_scale_inv", "_scales", "_zero_point",
                                        "_shape", ".g_idx",     ".qzeros", ".scales"};

// Of a GGUF file: what its configuration is made of.
constexpr std::string_view kGgufRopes[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                           "rope_factors_short.weight"};

// And where pictures are read: some files have that beside the text part.
constexpr std::string_view kGgufVision[] = {"v.", "mm."};

bool holds(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

// "….layers.7.…", or "blk.7.…" as GGUF has it; `end` is behind the number.
std::optional<int> layer_of(std::string_view name, std::size_t& end) {
  for (const std::string_view word : {"layers.", "layer.", "blk."}) {
    const std::size_t at = name.find(word);
    if (at == std::string_view::npos || (at > 0 && name[at - 1] != '.')) continue;
    int layer = 0;
    const char* begin = name.data() + at + word.size();
    const auto [rest, error] = std::from_chars(begin, name.data() + name.size(), layer);
    if (error != std::errc()) continue;
    end = static_cast<std::size_t>(rest - name.data());
    return layer;
  }
  return {};
}

// Of tensors as large as an embedding, pieces of it.
bool same_values(const Checkpoint::Entry& a, const Checkpoint::Entry& b) {
  if (a.tensor->shape != b.tensor->shape || a.tensor->type != b.tensor->type ||
      a.tensor->bytes != b.tensor->bytes)
    return false;
  constexpr std::size_t kPieces = 64, kPiece = 4096;
  const std::byte* left = a.file->data(*a.tensor);
  const std::byte* right = b.file->data(*b.tensor);
  const std::size_t bytes = a.tensor->bytes;
  if (bytes <= kPieces * kPiece) return std::memcmp(left, right, bytes) == 0;
  for (std::size_t i = 0; i < kPieces; ++i) {
    const std::size_t at = (bytes - kPiece) / (kPieces - 1) * i;
    if (std::memcmp(left + at, right + at, kPiece) != 0) return false;
  }
  return true;
}

bool is_zero(const Checkpoint::Entry& entry) {
  const std::byte* data = entry.file->data(*entry.tensor);
  return std::all_of(data, data + entry.tensor->bytes,
                     [](std::byte b) { return b == std::byte{0}; });
}

class Unused {
 public:
  Unused(const Checkpoint& checkpoint, const ModelConfig& config)
      : checkpoint_(checkpoint), config_(config), is_gguf_(config.quant.method == "gguf") {
    const Architecture* architecture = find_architecture(config.architecture);
    pools_ = architecture != nullptr && architecture->task != PoolingTask::none;
  }

  std::string check() {
    for (const std::string_view name : checkpoint_.unasked()) look_at(name);
    if (left_.empty()) return unread_head();
    std::string text = "the checkpoint has " + std::to_string(left_.size()) +
                       (left_.size() == 1 ? " tensor" : " tensors") +
                       " that the model does not read: ";
    constexpr std::size_t kNamed = 3;
    for (std::size_t i = 0; i < std::min(kNamed, left_.size()); ++i)
      text += (i == 0 ? "" : ", ") + name_in_file(left_[i]);
    text += left_.size() > kNamed ? ", …" : "";
    const std::string head = unread_head();
    return head.empty() ? text : text + "; " + head;
  }

 private:
  std::string name_in_file(std::string_view name) const {
    std::string text =
        is_gguf_ ? stored_name(checkpoint_.directory(), std::string(name)) : std::string(name);
    std::ranges::replace_if(
        text, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');  // it goes to a terminal
    return text;
  }

  [[noreturn]] void refuse(std::string_view name, const std::string& why) const {
    throw Failure(ErrorCode::unsupported, checkpoint_.directory().string() + ": tensor \"" +
                                              name_in_file(name) + "\" " + why);
  }

  bool harmless(std::string_view name) const {
    const auto in_name = [&](std::string_view part) { return holds(name, part); };
    const auto ends = [&](std::string_view part) { return name.ends_with(part); };
    if (std::ranges::any_of(kOthers, in_name) || std::ranges::any_of(kScales, ends)) return true;
    const auto begins = [&](std::string_view part) { return name.starts_with(part); };
    if (is_gguf_ && (std::ranges::find(kGgufRopes, name) != std::end(kGgufRopes) ||
                     std::ranges::any_of(kGgufVision, begins)))
      return true;
    if (config_.tie_word_embeddings && holds(name, "lm_head.")) return true;
    return pools_ && std::ranges::any_of(kHeads, in_name);
  }

  // A head that tie_word_embeddings leaves unread, where it is not the embedding's copy.
  std::string unread_head() const {
    if (!config_.tie_word_embeddings) return "";
    const Checkpoint::Entry* head = nullptr;
    const Checkpoint::Entry* embedding = nullptr;
    for (const auto& [name, entry] : checkpoint_.tensors()) {
      const auto is = [&](std::string_view what) {
        return name.ends_with(what) &&
               std::ranges::none_of(kOthers, [&](std::string_view part) { return holds(name, part); });
      };
      if (is("lm_head.weight")) head = &entry;
      if (is("embed_tokens.weight")) embedding = &entry;
    }
    if (head == nullptr || embedding == nullptr || head->tensor->type != embedding->tensor->type ||
        same_values(*head, *embedding))
      return "";
    return "lm_head.weight is not read, since tie_word_embeddings is true, and it is not the "
           "embedding's copy";
  }

  // A layer behind the last that drafts tokens: DeepSeek's and GLM's.
  bool drafts(std::string_view name, std::size_t end) const {
    return checkpoint_.tensors().contains(std::string(name.substr(0, end)) + ".eh_proj.weight");
  }

  void look_at(std::string_view name) {
    if (holds(name, "lora_A") || holds(name, "lora_B"))
      refuse(name,
             "is an adapter's beside its base model; merge it (peft's merge_and_unload) and "
             "serve that");
    if (harmless(name)) return;
    std::size_t end = 0;
    const auto layer = layer_of(name, end);
    if (layer && *layer >= config_.num_layers) {
      if (drafts(name, end)) return;
      refuse(name, "is of layer " + std::to_string(*layer) + ", and " +
                       (is_gguf_ ? "block_count" : "num_hidden_layers") + " of " +
                       config_.file.string() + " is " + std::to_string(config_.num_layers));
    }
    if (layer && (name.ends_with(".weight") || name.ends_with(".sinks")))
      refuse(name, "is a weight that layers of " + config_.architecture +
                       (is_gguf_ ? " as the file's metadata describe them do not have"
                                 : " as config.json describes them do not have"));
    // Quantizers publish biases of zeros where the model has none.
    if (name.ends_with(".bias") && is_zero(checkpoint_.tensors().at(name))) return;
    left_.push_back(name);
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  bool is_gguf_;
  bool pools_ = false;
  std::vector<std::string_view> left_;
};

}  // namespace

std::string check_unused(const Checkpoint& checkpoint, const ModelConfig& config) {
  return Unused(checkpoint, config).check();
}

}  // namespace quire
