// What a start-up allocates, on the CPU backend and on the emulated CUDA backend: as planned, by
// purpose, and nothing afterwards; and start-ups that do not get their memory.

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>

#include "cpu/cpu_backend.h"
#include "engine/size_text.h"
#include "tests/cuda_emulation/memory.h"
#include "tests/engine/core/emulated_backend.h"
#include "tests/engine/core/stepped_engine.h"
#include "tests/support/forwarding_device.h"

namespace quire::test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

EngineConfig small_config(DeviceKind device, const std::string& model) {
  EngineConfig config = tiny_config();
  config.model.path = model;
  config.device = device;
  config.cpu_threads = device == DeviceKind::cpu ? 1 : 0;
  config.model.max_model_len = 256;
  config.cache.num_gpu_blocks_override.reset();
  config.cache.kv_cache_memory_bytes = 8 * kMiB;
  config.scheduler.max_num_seqs = 5;
  config.scheduler.max_num_batched_tokens = 32;
  if (device == DeviceKind::cuda) config.graphs.capture_sizes = {2};
  return config;
}

SteppedEngine engine_of(const EngineConfig& config) {
  return SteppedEngine(config, config.device == DeviceKind::cuda ? emulated_backend : cpu_backend);
}

EnginePlan plan_of(const EngineConfig& config, PlannedDevice device) {
  return plan_engine(config, read_model_config(config.model.path), device);
}

PlannedDevice machine(DeviceKind kind, std::int64_t total_bytes, std::int64_t available = 0) {
  return {.kind = kind,
          .is_host_memory = kind == DeviceKind::cpu,
          .total_bytes = total_bytes,
          .available_bytes = available,
          .ops = kind == DeviceKind::cpu ? cpu_traits() : cuda_traits()};
}

std::vector<SamplingParams> all_kinds_of_sampling() {
  SamplingParams plain = greedy_request({}, 1).sampling;
  std::vector<SamplingParams> kinds(6, plain);
  kinds[1].temperature = 1;
  kinds[1].top_p = 0.9f;
  kinds[2].repetition_penalty = 1.2f;
  kinds[2].presence_penalty = 0.5f;
  kinds[3].logprobs = kMaxLogprobs;
  kinds[3].logit_bias = {{3, 2.f}};
  kinds[4].prompt_logprobs = kMaxLogprobs;
  kinds[5].allowed_tokens = {5, 6, 7};
  kinds[5].min_tokens = 4;
  kinds[5].stop_token_ids = {5};
  for (SamplingParams& kind : kinds) kind.ignore_eos = true;
  return kinds;
}

// An emulation computes few tokens.
int output_tokens(DeviceKind device) { return device == DeviceKind::cuda ? 6 : 30; }

void run_all_kinds(SteppedEngine& engine, int num_output) {
  int prompt = 3;
  for (const SamplingParams& kind : all_kinds_of_sampling()) {
    AddRequest request = greedy_request(std::vector<TokenId>(prompt, 9), 30);
    request.sampling = kind;
    request.sampling.max_tokens = num_output;
    engine.add(std::move(request));
    prompt += 13;
  }
  engine.run();
  for (const auto& [id, output] : engine.outputs) {
    INFO((output.error ? output.error->detail : std::string()));
    CHECK_FALSE(output.error);
  }
}

void expect_as_planned(const EngineConfig& config, const SteppedEngine& engine) {
  const EnginePlan plan = plan_of(config, machine(config.device, std::int64_t{8} << 30));
  REQUIRE(plan.model.has_value());
  std::int64_t device = 0;
  for (const MemoryUseInfo& use : engine.core.ready().memory) {
    CAPTURE(use.purpose);
    device += use.planned_bytes;
    if (use.purpose == "graphs") {
      CHECK(use.allocated_bytes > 0);
      CHECK(use.allocated_bytes <= use.planned_bytes);
    } else {
      CHECK(use.allocated_bytes == use.planned_bytes);
    }
  }
  CHECK(device == static_cast<std::int64_t>(plan.uses.total().device) + plan.mapped_bytes);
}

// The CPU, which has no memory for the nth allocation.
class FailingDevice final : public ForwardingDevice {
 public:
  FailingDevice(int nth, bool& failed)
      : ForwardingDevice(make_cpu_device()), left_(nth), failed_(failed) {}
  ~FailingDevice() override { CHECK(ledger().uses() == MemoryUses{}); }

  Buffer allocate(std::size_t bytes, MemoryPurpose purpose) override {
    take(purpose);
    return ForwardingDevice::allocate(bytes, purpose);
  }
  Buffer allocate_zeroed(std::size_t bytes, MemoryPurpose purpose) override {
    take(purpose);
    return ForwardingDevice::allocate_zeroed(bytes, purpose);
  }
  Buffer allocate_host(std::size_t bytes, MemoryPurpose purpose) override {
    take(purpose);
    return ForwardingDevice::allocate_host(bytes, purpose);
  }

 private:
  void take(MemoryPurpose purpose) {
    failed_ = --left_ == 0;
    if (failed_)
      throw Failure(ErrorCode::unavailable, "no memory for " + std::string(name_of(purpose)));
  }

  int left_;
  bool& failed_;
};

// Why it failed; empty: it did not.
std::string failure_of(const EngineConfig& config, const BackendFactory& backend) {
  try {
    SteppedEngine engine(config, backend);
    return "";
  } catch (const Failure& failure) {
    return failure.what();
  }
}

}  // namespace

TEST_CASE("start-up allocates what is planned, a step nothing", "[engine][memory]") {
  const auto device = GENERATE(DeviceKind::cpu, DeviceKind::cuda);
  const std::string model =
      GENERATE("models/quire-tiny", "tests/data/golden/models/deepseek-v3",
               "tests/data/golden/models/nemotron-h", "tests/data/golden/models/qwen3-5",
               "tests/data/golden/drafts/eagle3-qwen3/target",
               "tests/data/golden/drafts/mtp-qwen3-next/target");
  CAPTURE(static_cast<int>(device), model);
  EngineConfig config = small_config(device, model);
  if (model.ends_with("/target")) {
    config.speculative = {.method = DraftMethod::mtp, .num_speculative_tokens = 2};
    if (model.find("eagle3") != std::string::npos) {
      config.speculative.method = DraftMethod::eagle3;
      config.speculative.model = std::filesystem::path(model).parent_path() / "draft";
    }
  }
  SteppedEngine engine = engine_of(config);
  expect_as_planned(config, engine);
  run_all_kinds(engine, output_tokens(device));
  CHECK(engine.core.stats().late_allocations == 0);
}

TEST_CASE("an fp8 cache has a plan for what prompts widen of it", "[engine][memory]") {
  EngineConfig config = small_config(DeviceKind::cuda, "models/quire-tiny");
  config.cache.cache_dtype = DType::fp8_e4m3;
  SteppedEngine engine = engine_of(config);
  expect_as_planned(config, engine);
  run_all_kinds(engine, output_tokens(DeviceKind::cuda));
  CHECK(engine.core.stats().late_allocations == 0);
  // All key heads of the longest request: two of 64 elements.
  config.model.max_model_len = 2048;
  const auto activations = [&](DType cache) {
    config.cache.cache_dtype = cache;
    const EnginePlan plan = plan_of(config, machine(DeviceKind::cuda, std::int64_t{8} << 30));
    return static_cast<std::int64_t>(plan.uses[MemoryPurpose::activations].device);
  };
  CHECK(activations(DType::fp8_e4m3) > activations(DType::bf16) + kMiB / 2);
}

TEST_CASE("preempted requests allocate nothing either", "[engine][memory]") {
  const auto device = GENERATE(DeviceKind::cpu, DeviceKind::cuda);
  EngineConfig config = small_config(device, "models/quire-tiny");
  config.model.max_model_len = 160;
  config.cache.num_gpu_blocks_override = 12;
  config.cache.enable_prefix_caching = false;
  config.scheduler.scheduler_reserve_full_isl = false;
  SteppedEngine engine = engine_of(config);
  run_all_kinds(engine, output_tokens(device));
  CHECK(engine.core.stats().preemptions > 0);
  CHECK(engine.core.stats().late_allocations == 0);
}

TEST_CASE("an engine on a device of its own memory stages what a host's does not",
          "[engine][memory]") {
  EngineConfig config = small_config(DeviceKind::cpu, "models/quire-tiny");
  SteppedEngine engine(config, pretend_backend);
  run_all_kinds(engine, 30);
  CHECK(engine.core.stats().late_allocations == 0);
  std::int64_t pinned = 0;
  for (const MemoryUseInfo& use : engine.core.ready().memory) pinned += use.pinned_bytes;
  CHECK(pinned > 0);
}

TEST_CASE("an allocation after start-up is an error where it is looked for", "[engine][memory]") {
  const auto device = make_cpu_device();
  const Buffer early = device->allocate(100, MemoryPurpose::sampling);
  device->ledger().seal();
#ifdef NDEBUG
  const Buffer late = device->allocate(28, MemoryPurpose::sampling);
  CHECK(device->ledger().uses()[MemoryPurpose::sampling].device == 128);
#else
  CHECK_THROWS_WITH(device->allocate(28, MemoryPurpose::sampling),
                    Catch::Contains("28 bytes allocated for sampling after start-up"));
  CHECK(device->ledger().uses()[MemoryPurpose::sampling].device == 100);
#endif
  CHECK(device->ledger().num_late() == 1);
}

TEST_CASE("a start-up that allocates something else names it", "[engine][memory]") {
  MemoryUses planned, allocated;
  planned[MemoryPurpose::logits] = {.device = 64, .pinned = 0};
  planned[MemoryPurpose::graphs] = {.device = 50, .pinned = 0};
  allocated = planned;
  allocated[MemoryPurpose::graphs].device = 80;  // the driver's
  CHECK_NOTHROW(check_allocated(planned, allocated));
  allocated[MemoryPurpose::logits].device = 65;
  CHECK_THROWS_WITH(check_allocated(planned, allocated),
                    Catch::Contains("logits: 64 bytes planned") && Catch::Contains("65 allocated"));
  allocated = planned;
  allocated[MemoryPurpose::other].pinned = 1;
  CHECK_THROWS_WITH(check_allocated(planned, allocated), Catch::Contains("other"));
}

TEST_CASE("whichever allocation fails, a start-up ends with its reason", "[engine][memory]") {
  SECTION("on a CPU") {
    const EngineConfig config = small_config(DeviceKind::cpu, "models/quire-tiny-hybrid");
    bool failed = true;
    int count = 0;
    for (; failed; ++count) {
      CAPTURE(count);
      const std::string why = failure_of(config, [&](const EngineConfig&) {
        return EngineBackend{.kind = DeviceKind::cpu,
                             .device = std::make_unique<FailingDevice>(count + 1, failed),
                             .ops = make_cpu_ops({.threads = 1})};
      });
      CHECK(why.starts_with("no memory for ") == failed);
    }
    CHECK(count > 30);
  }
  SECTION("on a GPU") {
    const EngineConfig config = small_config(DeviceKind::cuda, "models/quire-tiny");
    std::map<std::string, int> purposes;
    for (int nth = 1;; ++nth) {
      CAPTURE(nth);
      emulation::fail_allocation(nth);
      const std::string why = failure_of(config, emulated_backend);
      CHECK(emulation::all_released());
      if (why.empty()) break;
      std::smatch parts;
      REQUIRE(std::regex_match(
          why, parts, std::regex("no .*memory for (\\w+): \\d+ of \\d+ device bytes are free")));
      ++purposes[parts[1]];
    }
    emulation::fail_allocation(0);
    for (const char* purpose : {"weights", "kv_cache", "activations", "logits", "block_tables",
                                "step_inputs", "sampling", "kernels", "graphs"}) {
      CAPTURE(purpose);
      CHECK(purposes.contains(purpose));
    }
  }
}

TEST_CASE("a device that is too small is refused with what would work", "[engine][memory]") {
  EngineConfig config = small_config(DeviceKind::cuda, "models/quire-tiny");
  config.cache.kv_cache_memory_bytes = 0;
  config.cache.gpu_memory_utilization = 0.5;
  const EnginePlan refused = plan_of(config, machine(DeviceKind::cuda, 200 * kMiB));
  REQUIRE(refused.model.has_error());
  const std::string why = refused.model.error().detail;
  INFO(why);
  std::smatch advice;
  REQUIRE(
      std::regex_search(why, advice, std::regex("CacheConfig::gpu_memory_utilization ([0-9.]+)")));
  config.cache.gpu_memory_utilization = std::stod(advice[1]);
  CHECK(plan_of(config, machine(DeviceKind::cuda, 200 * kMiB)).model.has_value());

  const EnginePlan hopeless = plan_of(config, machine(DeviceKind::cuda, 90 * kMiB));
  REQUIRE(hopeless.model.has_error());
  const std::string detail = hopeless.model.error().detail;
  INFO(detail);
  CHECK(detail.find("do not fit") != std::string::npos);
  REQUIRE(std::regex_search(detail, advice, std::regex("a device of at least ([0-9.]+ ?[MG]iB)")));
  std::string size = advice[1];
  size.erase(size.find(' '), 1);
  CHECK(plan_of(config, machine(DeviceKind::cuda, parse_bytes(size).value())).model.has_value());
}

TEST_CASE("a share of main memory that others use is refused before it is touched",
          "[engine][memory]") {
  EngineConfig config = small_config(DeviceKind::cpu, "models/quire-tiny");
  config.cache.kv_cache_memory_bytes = 0;
  config.cache.gpu_memory_utilization = 0.9;
  CHECK(plan_of(config, machine(DeviceKind::cpu, 1024 * kMiB)).model.has_value());
  const auto busy = machine(DeviceKind::cpu, 1024 * kMiB, 400 * kMiB);
  const EnginePlan refused = plan_of(config, busy);
  REQUIRE(refused.model.has_error());
  const std::string why = refused.model.error().detail;
  INFO(why);
  std::smatch advice;
  REQUIRE(
      std::regex_search(why, advice, std::regex("CacheConfig::gpu_memory_utilization ([0-9.]+)")));
  config.cache.gpu_memory_utilization = std::stod(advice[1]);
  const EnginePlan planned = plan_of(config, busy);
  REQUIRE(planned.model.has_value());
  CHECK(planned.uses.total().device < 400 * kMiB);
  CHECK(planned.uses.total().device > 380 * kMiB);
}
TEST_CASE("a cache that was given its size must fit what is there", "[engine][memory]") {
  EngineConfig config = small_config(DeviceKind::cuda, "models/quire-tiny");
  config.cache.kv_cache_memory_bytes = 300 * kMiB;
  CHECK(plan_of(config, machine(DeviceKind::cuda, 512 * kMiB)).model.has_value());
  const auto busy = machine(DeviceKind::cuda, 512 * kMiB, 256 * kMiB);
  const EnginePlan refused = plan_of(config, busy);
  REQUIRE(refused.model.has_error());
  const std::string why = refused.model.error().detail;
  INFO(why);
  CHECK(why.find("too few") != std::string::npos);
  std::smatch advice;
  REQUIRE(std::regex_search(why, advice, std::regex("CacheConfig::kv_cache_memory_bytes (\\d+)")));
  config.cache.kv_cache_memory_bytes = std::stoll(advice[1]);
  CHECK(plan_of(config, busy).model.has_value());
}

TEST_CASE("a plan has chunks of recurrent layers, or says what they want", "[engine][states]") {
  for (const char* model : {"nemotron-h", "qwen3-5"}) {
    CAPTURE(model);
    EngineConfig config =
        small_config(DeviceKind::cuda, std::string("tests/data/golden/models/") + model);
    const auto plan = [&](DType dtype, DeviceKind kind) {
      config.device = kind;
      config.model.dtype = dtype;
      config.scheduler.max_num_batched_tokens = 128;
      return plan_of(config, machine(kind, 1024 * kMiB)).model.value();
    };
    const auto says_so = [](const ModelPlan& plan) {
      return std::ranges::any_of(plan.notes, [](const std::string& note) {
        return note.find("token by token") != std::string::npos;
      });
    };
    const ModelPlan chunks = plan(DType::bf16, DeviceKind::cuda);
    CHECK(chunks.state_chunk == 64);
    CHECK_FALSE(says_so(chunks));
    const ModelPlan tokens = plan(DType::f32, DeviceKind::cuda);
    CHECK(tokens.state_chunk == 1);
    CHECK(says_so(tokens));
    config.graphs = {};
    CHECK_FALSE(says_so(plan(DType::f32, DeviceKind::cpu)));
  }
}

}  // namespace quire::test
