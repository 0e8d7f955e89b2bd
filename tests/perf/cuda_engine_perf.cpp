// Whole models through the engine on a GPU, with random weights of well-known shapes: one stream
// beside the rate at which this GPU reads memory, many streams, and how long the GPU waits for the
// host between two steps. One JSON object a line.
//   cuda_engine_perf [--seconds N] [--tiny]     N: start no case after this many

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cuda/cuda_backend.h"
#include "engine/core/engine_core.h"
#include "tests/perf/cuda_probes.h"
#include "tests/perf/perf_record.h"
#include "tests/perf/timed_device.h"

namespace quire::perf {
namespace {

using WallClock = std::chrono::steady_clock;
double seconds_since(WallClock::time_point begin) {
  return std::chrono::duration<double>(WallClock::now() - begin).count();
}

struct ModelShape {
  const char* name;
  const char* architecture;
  const char* type;
  int layers, hidden, intermediate, heads, kv_heads, head_dim, vocab;
  bool tied;
  double goal;  // share of the read rate at batch 1

  // Of one decode step: every weight but the rows of the embedding that are not looked up.
  double weight_bytes() const {
    const double attention =
        double(hidden) * (heads + 2 * kv_heads) * head_dim + double(heads) * head_dim * hidden;
    return 2 * (layers * (attention + 3. * hidden * intermediate) + double(vocab) * hidden);
  }
  double cache_bytes(int context) const { return 4. * layers * kv_heads * head_dim * context; }
};

// Llama-3.1-8B, Llama-3.2-1B and Qwen3-0.6B as published.
constexpr ModelShape kModels[] = {
    {"8b", "LlamaForCausalLM", "llama", 32, 4096, 14336, 32, 8, 128, 128256, false, 0.88},
    {"1b", "LlamaForCausalLM", "llama", 16, 2048, 8192, 32, 8, 64, 128256, true, 0.80},
    {"0.6b", "Qwen3ForCausalLM", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, true, 0.65},
};
constexpr ModelShape kTiny = {"tiny", "Qwen3ForCausalLM", "qwen3", 1, 64, 64, 1, 1, 64, 128, true,
                              0};

// A folder with a config.json, for --load-format dummy.
class ModelFolder {
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

EngineConfig config_of(const ModelFolder& folder, bool tiny) {
  EngineConfig config;
  config.model.path = folder.path();
  config.model.load_format = LoadFormat::dummy;
  config.model.max_model_len = tiny ? 256 : 8192;
  config.device = DeviceKind::cuda;
  config.cache.enable_prefix_caching = false;
  if (tiny) config.cache.num_gpu_blocks_override = 200;
  config.scheduler.max_num_batched_tokens = tiny ? 128 : 8192;
  config.scheduler.max_num_seqs = tiny ? 8 : 256;
  return config;
}

class Engine {
 public:
  Engine(const ModelShape& shape, bool tiny)
      : shape_(shape),
        folder_(shape),
        core_(config_of(folder_, tiny), EngineId{0}, backend(), [](std::string_view, double) {}) {}

  TimedDevice& device() { return *device_; }

  void add(int prompt_tokens, int output_tokens) {
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
  // One step; the number of tokens that came out.
  int step() {
    const StepOutput output = core_.step();
    auto tokens = static_cast<int>(output.tokens.size());
    for (const RequestOutput& request : output.requests) {
      if (request.error) throw Failure(request.error->code, request.error->detail);
      tokens += static_cast<int>(request.token_ids.size());
    }
    return tokens;
  }
  bool has_work() const { return core_.has_work(); }

 private:
  EngineBackend backend() {
    auto timed = std::make_unique<TimedDevice>(make_cuda_device({}));
    device_ = timed.get();
    EngineBackend backend{.kind = DeviceKind::cuda, .device = std::move(timed), .ops = nullptr};
    backend.ops = make_cuda_ops(*backend.device);
    return backend;
  }

  const ModelShape& shape_;
  ModelFolder folder_;
  TimedDevice* device_ = nullptr;  // the core's
  EngineCore core_;
  std::uint64_t last_id_ = 0;
};

// All requests decode: steps until each has had its first token do not count.
void steady_decode(Engine& engine, const ModelShape& shape, int streams, int prompt, int steps,
                   double read_rate) {
  const auto begin = WallClock::now();
  for (int i = 0; i < streams; ++i) engine.add(prompt, steps + 64);
  int tokens = 0;
  while (tokens < streams) tokens += engine.step();
  const double prefill = seconds_since(begin);
  for (int i = 0; i < 16; ++i) engine.step();
  engine.device().take_times();
  const auto steady = WallClock::now();
  int produced = 0, taken = 0;
  for (; taken < steps; ++taken) produced += engine.step();
  const double seconds = seconds_since(steady);
  const StepTimes gpu = engine.device().take_times();
  while (engine.has_work()) engine.step();

  const double per_step = seconds / taken;
  Record record("decode", std::string(shape.name) + ", streams " + std::to_string(streams));
  record.number("tokens_s", produced / seconds)
      .number("ms_per_step", per_step * 1e3)
      .number("gpu_idle_share", gpu.span > 0 ? gpu.idle / gpu.span : NAN)
      .number("goal_idle_share", 0.01)
      .number("prompt_tokens", prompt)
      .number("prefill_tokens_s", streams * prompt / prefill);
  const double bytes = shape.weight_bytes() + streams * shape.cache_bytes(prompt + 16 + steps / 2);
  record.number("gb_s", bytes / per_step * 1e-9)
      .number("share_of_read", bytes / per_step / read_rate);
  if (streams == 1) record.number("goal", shape.goal);
}

void measure(const ModelShape& shape, bool tiny, double read_rate) {
  const auto begin = WallClock::now();
  Engine engine(shape, tiny);
  Record("start", std::string(shape.name) + ", random weights").number("s", seconds_since(begin));
  if (tiny) return steady_decode(engine, shape, 2, 20, 8, read_rate);
  steady_decode(engine, shape, 1, 128, 256, read_rate);
  if (std::strcmp(shape.name, "8b") != 0) return;
  for (const int streams : {8, 64, 256})
    steady_decode(engine, shape, streams, 1000, 128, read_rate);
}

double read_rate_of_device(bool tiny) {
  const auto device = make_cuda_device({});
  return probe_read(*device, tiny);
}

void run(double limit, bool tiny) {
  const auto begin = WallClock::now();
  const double read_rate = read_rate_of_device(tiny);
  if (tiny) return measure(kTiny, true, read_rate);
  for (const ModelShape& shape : kModels) {
    if (seconds_since(begin) > limit) {
      Record("decode", shape.name).text("left_out", "no time");
      continue;
    }
    measure(shape, false, read_rate);
  }
}

}  // namespace
}  // namespace quire::perf

int main(int argc, char** argv) {
  double limit = 1e9;
  bool tiny = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--tiny") == 0) tiny = true;
    if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) limit = std::atof(argv[++i]);
  }
  if (const std::string reason = quire::cuda_unavailable(); !reason.empty()) {
    std::fprintf(stderr, "cuda_engine_perf: %s\n", reason.c_str());
    return 77;
  }
  try {
    quire::perf::run(limit, tiny);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_engine_perf: %s\n", error.what());
    return 1;
  }
}
