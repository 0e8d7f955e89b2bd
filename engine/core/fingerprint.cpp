#include "engine/core/fingerprint.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "engine/wire/messages.h"
#include "gguf/archive.h"
#include "model/checkpoint.h"
#include "model/draft_config.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// FNV-1a, 64 bits.
class Hash {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) {
      value_ = (value_ ^ static_cast<unsigned char>(c)) * 1099511628211u;
    }
  }
  std::string text() const {
    std::array<char, 17> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(value_));
    return digits.data();
  }

 private:
  std::uint64_t value_ = 14695981039346656037u;
};

constexpr std::uintmax_t kWhole = 64 << 20;  // bytes: up to here a file is looked at whole
constexpr std::uintmax_t kHead = 1 << 16;    // bytes: most headers, or their larger part
constexpr std::uintmax_t kSample = 1 << 10;  // bytes
constexpr std::uintmax_t kSamples = 64;      // per file, evenly spread

void add_range(Hash& hash, std::ifstream& file, std::uintmax_t first, std::uintmax_t count) {
  std::string bytes(count, '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(first));
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  hash.add(bytes);
}

void add_file(Hash& hash, const fs::path& path) {
  const std::uintmax_t size = fs::file_size(path);
  hash.add(path.filename().string() + ":" + std::to_string(size));
  std::ifstream file(path, std::ios::binary);
  add_range(hash, file, 0, size <= kWhole ? size : kHead);
  for (std::uintmax_t i = 1; i <= kSamples && size > kWhole; ++i) {
    add_range(hash, file, size / kSamples * i - std::min(size, kSample), kSample);
  }
}

std::vector<fs::path> weight_files(const fs::path& folder) {
  std::vector<fs::path> weights;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") weights.push_back(entry.path());
  }
  std::ranges::sort(weights);
  return weights;
}

void add_weights(Hash& hash, const fs::path& model) {
  for (const fs::path& path : gguf::is_gguf(model) ? gguf::files_of(model) : weight_files(model))
    add_file(hash, path);
}

void add_folder(Hash& hash, const fs::path& folder, bool with_weights) {
  add_file(hash, folder / "config.json");
  if (with_weights) add_weights(hash, folder);
}

void add_numbers(std::string& text, std::initializer_list<std::int64_t> numbers) {
  for (const std::int64_t number : numbers) text += std::to_string(number) + " ";
}

// When its weights were last written: samples do not see every edit.
void add_times(std::string& text, const fs::path& model) {
  for (const fs::path& path : gguf::is_gguf(model) ? gguf::files_of(model) : weight_files(model))
    add_numbers(text, {fs::last_write_time(path).time_since_epoch().count()});
}

// Every field that changes what the bytes are, or which of them there are.
void add_layer(std::string& text, const LayerCache& layer) {
  const KvSpec& spec = layer.spec;
  const auto page = static_cast<std::int64_t>(layer.page_bytes);
  const auto padded = static_cast<std::int64_t>(spec.page_size_padded);
  const auto of = [](auto kind) { return static_cast<std::int64_t>(kind); };
  text += "\n" + std::string(name_of(spec.dtype)) + " ";
  add_numbers(text, {layer.group, page, layer.block_size, layer.kernel_block_size, of(spec.kind),
                     of(spec.quant), spec.num_kv_heads, spec.head_size, spec.head_size_v,
                     spec.sliding_window, spec.attention_chunk_size, padded, of(spec.mla_format),
                     of(spec.mla_version), spec.compress_ratio, spec.num_speculative_blocks,
                     of(spec.state_cache_mode)});
  for (const StateTensor& state : spec.states) {
    text += std::string(name_of(state.dtype)) + " ";
    for (const std::int64_t extent : state.shape) add_numbers(text, {extent});
  }
}

}  // namespace

std::string model_fingerprint(const EngineConfig& config, const ModelConfig& model, DType dtype,
                              std::int64_t longest_context) {
  Hash hash;
  hash.add(name_of(dtype));
  if (model.rope.kind == RopeKind::dynamic) hash.add("rope:" + std::to_string(longest_context));
  const std::string& method = config.model.quantization;
  if (method == "int8" || method == "int4") hash.add(method);  // other weights than the file's
  const bool is_dummy = config.model.load_format == LoadFormat::dummy;
  const fs::path folder = config.model.path;
  if (gguf::is_gguf(folder)) {
    add_weights(hash, folder);
  } else {
    add_folder(hash, folder, !is_dummy);
  }
  if (is_dummy) hash.add("dummy:" + std::to_string(config.model.seed));
  return hash.text();
}

std::string draft_fingerprint(const SpeculativeConfig& drafts) {
  if (!drafts.uses_draft_model()) return {};
  Hash hash;
  if (!drafts.model.empty()) add_folder(hash, drafts.model, true);
  hash.add("method:" + std::to_string(static_cast<int>(drafts.method)));
  return hash.text();
}

std::string weights_fingerprint(const std::string& model_path) {
  Hash hash;
  add_weights(hash, model_path);
  return hash.text();
}

void check_draft_target(const EngineConfig& config) {
  constexpr const char* kField = "target_fingerprint";
  if (config.model.load_format == LoadFormat::dummy) return;
  const DraftConfig draft = read_draft_config(config.speculative.model);
  // Sizes can be asked for before the weights are there.
  if (draft.target_fingerprint.empty() || !Checkpoint::is_in(config.model.path)) return;
  const std::string target = weights_fingerprint(config.model.path);
  if (draft.target_fingerprint == target) return;
  throw Failure(Error{ErrorCode::invalid_argument,
                      draft.layer.file.string() + ": " + kField + ": is " +
                          draft.target_fingerprint + ", that of the weights in " +
                          config.model.path + " is " + target +
                          ": the draft was trained for others. If these are the same in another " +
                          "form (quantized, merged, renamed), change the field or remove it",
                      kField});
}

std::string cache_fingerprint(const EngineConfig& config, const std::string& model,
                              const std::string& device, int hash_block_size,
                              std::span<const LayerCache> layers) {
  std::string text = std::string(quire_version()) + "\n" + device + "\n" + model + "\n";
  const SpeculativeConfig& drafts = config.speculative;
  text += draft_fingerprint(drafts) + "\n";
  if (!drafts.model.empty()) add_times(text, drafts.model);
  add_times(text, config.model.path);
  add_numbers(text, {hash_block_size});
  for (const LayerCache& layer : layers) add_layer(text, layer);
  return text;
}

}  // namespace quire
