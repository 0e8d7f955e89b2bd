#include "tests/perf/perf_engine.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cuda/cuda_backend.h"
#include "engine/capture_sizes.h"

namespace quire::perf {

// A folder with a config.json, for --load-format dummy.
class PerfEngine::ModelFolder {
 public:
  explicit ModelFolder(const ModelShape& m)
      : path_(std::filesystem::temp_directory_path() /
              ("quire-perf-" + std::to_string(getpid()) + "-" + m.name)) {
    std::filesystem::create_directories(path_);
    std::ofstream(path_ / "config.json")
        << "{\"architectures\": [\"" << m.architecture << "\"], \"model_type\": \"" << m.type
        << "\", \"num_hidden_layers\": " << m.layers << ", \"hidden_size\": " << m.hidden
        << ", \"intermediate_size\": " << m.intermediate << ", \"num_attention_heads\": " << m.heads
        << ", \"num_key_value_heads\": " << m.kv_heads << ", \"head_dim\": " << m.head_dim
        << ", \"vocab_size\": " << m.vocab
        << ", \"tie_word_embeddings\": " << (m.tied ? "true" : "false")
        << ", \"max_position_embeddings\": 131072, \"rope_theta\": 500000.0"
        << ", \"rms_norm_eps\": 1e-05, \"hidden_act\": \"silu\", \"torch_dtype\": \"bfloat16\"}\n";
  }
  ~ModelFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

namespace {

EngineConfig config_of(const std::string& folder, bool tiny, const EngineWay& way) {
  EngineConfig config;
  config.model.path = folder;
  config.model.load_format = LoadFormat::dummy;
  config.model.max_model_len = tiny ? 256 : 8192;
  config.device = DeviceKind::cuda;
  config.graphs.enforce_eager = way.eager;
  config.graphs.only_decode = way.only_decode;
  config.cache.enable_prefix_caching = false;
  if (tiny) config.cache.num_gpu_blocks_override = 200;
  config.scheduler.max_num_batched_tokens = tiny ? 128 : 8192;
  config.scheduler.max_num_seqs = tiny ? 8 : 256;
  if (way.all_mixed) {
    const int most = std::min(kMostMixed, config.scheduler.max_num_batched_tokens);
    config.graphs.capture_sizes = mixed_capture_sizes_up_to(most);
  }
  return config;
}

}  // namespace

PerfEngine::PerfEngine(const ModelShape& shape, bool tiny, const EngineWay& way)
    : shape_(shape),
      folder_(std::make_unique<ModelFolder>(shape)),
      core_((cuda::variants = way.variants, config_of(folder_->path(), tiny, way)),
            EngineId{0}, backend(), [](std::string_view, double) {}) {}

PerfEngine::~PerfEngine() { cuda::variants = {}; }

EngineBackend PerfEngine::backend() {
  auto device = std::make_unique<TimedDevice>(make_cuda_device({}));
  device_ = device.get();
  auto ops = std::make_unique<TimedOps>(make_cuda_ops(*device));
  ops_ = ops.get();
  return {.kind = DeviceKind::cuda, .device = std::move(device), .ops = std::move(ops)};
}

void PerfEngine::add(int prompt_tokens, int output_tokens) {
  AddRequest request;
  request.id = RequestId{++last_id_};
  for (int i = 0; i < prompt_tokens; ++i)
    request.prompt.push_back(
        static_cast<TokenId>((last_id_ * 7919 + static_cast<std::uint64_t>(i) * 31) %
                             static_cast<std::uint64_t>(shape_.vocab)));
  request.sampling.temperature = 0;
  request.sampling.max_tokens = output_tokens;
  request.sampling.ignore_eos = true;
  core_.add(std::move(request));
}

int PerfEngine::step() {
  const StepOutput output = core_.step();
  int tokens = 0;
  for (const TokenOutput& token : output.tokens) {
    note(token.id, token.token);
    ++tokens;
  }
  for (const RequestOutput& request : output.requests) {
    if (request.error) throw Failure(request.error->code, request.error->detail);
    for (const TokenId token : request.token_ids) note(request.id, token);
    tokens += static_cast<int>(request.token_ids.size());
  }
  return tokens;
}

void PerfEngine::note(RequestId id, TokenId token) {
  begun_.insert(id);
  digest_ = (digest_ ^ static_cast<std::uint64_t>(token)) * 1099511628211u;  // FNV-1a
}

}  // namespace quire::perf
