#include "engine/core/handshake.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "gguf/archive.h"
#include "model/kv_spec.h"

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
  add_range(hash, file, 0, std::min(size, kHead));
  for (std::uintmax_t i = 1; i <= kSamples && size > kHead; ++i) {
    add_range(hash, file, size / kSamples * i - std::min(size, kSample), kSample);
  }
}

// As KvGroup::page_bytes, without padding.
std::int64_t unpadded_page_bytes_of(const KvGroup& group) {
  if (!group.per_layer_specs) return static_cast<std::int64_t>(unpadded_page_bytes(group.spec));
  std::int64_t sum = 0;
  for (const KvSpec& spec : group.layer_specs) {
    sum += static_cast<std::int64_t>(unpadded_page_bytes(spec));
  }
  return sum;
}

std::vector<MemoryUseInfo> memory_infos(const EnginePlan& plan, const MemoryUses& allocated) {
  std::vector<MemoryUseInfo> infos;
  for (std::size_t i = 0; i < kNumMemoryPurposes; ++i) {
    const auto purpose = static_cast<MemoryPurpose>(i);
    const MemoryUse& planned = plan.uses[purpose];
    const MemoryUse& actual = allocated[purpose];
    if (planned == MemoryUse{} && actual == MemoryUse{}) continue;
    infos.push_back({.purpose = std::string(name_of(purpose)),
                     .planned_bytes = static_cast<std::int64_t>(planned.device),
                     .allocated_bytes = static_cast<std::int64_t>(actual.device),
                     .pinned_bytes = static_cast<std::int64_t>(actual.pinned)});
  }
  if (plan.mapped_bytes > 0)
    infos.push_back({.purpose = "mapped_weights",
                     .planned_bytes = plan.mapped_bytes,
                     .allocated_bytes = plan.mapped_bytes});
  return infos;
}

}  // namespace

Ready make_ready(const EngineIdentity& identity, const EnginePlan& engine_plan,
                 const MemoryUses& allocated) {
  const ModelPlan& plan = *engine_plan.model;
  Ready ready;
  ready.engine = identity.engine;
  ready.version = quire_version();
  ready.max_model_len = static_cast<int>(plan.kv.max_model_len);
  ready.num_gpu_blocks = static_cast<int>(plan.kv.num_blocks);
  ready.block_size = plan.kv.block_size;
  for (const KvGroup& group : plan.kv.groups()) {
    ready.groups.push_back({.kind = std::string(kind_name(group.spec.kind)),
                            .block_size = group.block_size,
                            .kernel_block_size = group.kernel_block_size,
                            .page_bytes = static_cast<std::int64_t>(group.page_bytes),
                            .layers = static_cast<int>(group.layers.size()),
                            .unpadded_page_bytes = unpadded_page_bytes_of(group)});
    if (group.spec.kind == KvKind::mamba) {
      ready.mamba_cache_mode = name_of(plan.state_cache_mode);
    }
  }
  ready.kv_cache_size_tokens = plan.kv.kv_cache_size_tokens;
  ready.max_concurrency = plan.kv.max_concurrency;
  ready.dtype = name_of(identity.dtype);
  ready.kv_cache_dtype = name_of(plan.cache_dtype);
  ready.model_fingerprint = identity.model_fingerprint;
  ready.device = identity.device;
  ready.vocab_size = identity.vocab_size;
  ready.startup_seconds = identity.startup_seconds;
  ready.memory = memory_infos(engine_plan, allocated);
  return ready;
}

std::string model_fingerprint(const EngineConfig& config, DType dtype) {
  Hash hash;
  hash.add(name_of(dtype));
  const std::string& method = config.model.quantization;
  if (method == "int8" || method == "int4") hash.add(method);  // other weights than the file's
  const fs::path folder = config.model.path;
  if (gguf::is_gguf(folder)) {
    for (const fs::path& path : gguf::files_of(folder)) add_file(hash, path);
    if (config.model.load_format == LoadFormat::dummy) {
      hash.add("dummy:" + std::to_string(config.model.seed));
    }
    return hash.text();
  }
  add_file(hash, folder / "config.json");
  if (config.model.load_format == LoadFormat::dummy) {
    hash.add("dummy:" + std::to_string(config.model.seed));
    return hash.text();
  }
  std::vector<fs::path> weights;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") weights.push_back(entry.path());
  }
  std::ranges::sort(weights);
  for (const fs::path& path : weights) add_file(hash, path);
  return hash.text();
}

}  // namespace quire
