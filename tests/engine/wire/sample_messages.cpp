#include "tests/engine/wire/sample_messages.h"

namespace quire::test {
namespace {

Clock::time_point at(int nanoseconds) {
  return Clock::time_point(Clock::duration(std::chrono::nanoseconds(nanoseconds)));
}

SamplingParams sampling() {
  SamplingParams params;
  params.temperature = 0.5f;
  params.top_p = 0.25f;
  params.top_k = -1;
  params.min_p = 0.125f;
  params.seed = 0xfedcba9876543210u;
  params.presence_penalty = -1.5f;
  params.frequency_penalty = 1.25f;
  params.repetition_penalty = 1.75f;
  params.logit_bias = {{3, -100.f}, {70'000, 2.5f}};
  params.allowed_tokens = {0, 1, 2'000'000'000};
  params.max_tokens = 77;
  params.min_tokens = 7;
  params.stop_token_ids = {151'643};
  params.ignore_eos = true;
  params.logprobs = -1;
  params.prompt_logprobs = 0;
  params.skip_reading_prefix_cache = true;
  return params;
}

EngineConfig config() {
  EngineConfig config;
  config.model = {.path = "/models/a",
                  .served_name = "a",
                  .dtype = DType::f32,
                  .quantization = "fp8",
                  .max_model_len = -1,
                  .load_format = LoadFormat::dummy,
                  .seed = 42};
  config.cache.block_size = 32;
  config.cache.num_gpu_blocks_override = 1000;
  config.cache.kv_cache_memory_bytes = std::int64_t{5} << 32;
  config.cache.gpu_memory_utilization = 0.75;
  config.cache.cache_dtype = DType::f16;
  config.cache.enable_prefix_caching = false;
  config.cache.prefix_hash = PrefixHash::sha256_cbor;
  config.cache.hash_block_size = 8;
  config.cache.mamba_cache_mode = StateCacheMode::align;
  config.cache.mamba_block_size = 512;
  config.cache.mamba_cache_dtype = DType::bf16;
  config.cache.mamba_ssm_cache_dtype = DType::f32;
  config.cache.hybrid_manager = false;
  config.scheduler.max_num_seqs = 3;
  config.scheduler.max_num_batched_tokens = 333;
  config.scheduler.policy = SchedulingPolicy::priority;
  config.scheduler.enable_chunked_prefill = false;
  config.scheduler.long_prefill_token_threshold = 99;
  config.scheduler.scheduler_reserve_full_isl = false;
  config.scheduler.async_scheduling = false;
  config.scheduler.max_num_queued_reqs = 5;
  config.scheduler.max_num_queued_tokens = 6;
  config.parallel.tensor_parallel_size = 2;
  config.graphs.enforce_eager = true;
  config.graphs.capture_sizes = {1, 2, 48};
  config.kv_events = {.endpoint = "tcp://*:1",
                      .replay_endpoint = "tcp://*:2",
                      .topic = "kv",
                      .buffer_steps = 3,
                      .high_water_mark = 4,
                      .int_hashes = false,
                      .hash_seed = "0"};
  config.device = DeviceKind::cuda;
  config.cpu_threads = 6;
  config.deterministic = true;
  return config;
}

RequestOutput output() {
  RequestOutput output;
  output.id = RequestId{12};
  output.token_ids = {5, 0, 151'000};
  output.logprobs = {{{5, -0.5f}, 2, {{9, -0.25f}, {5, -0.5f}}}, {{0, -1.f}, 1, {}}};
  output.finish_reason = FinishReason::error;
  output.stop_token = 151'000;
  output.num_cached_tokens = 64;
  output.num_preemptions = 2;
  output.times = {at(1), at(2), at(3), at(4)};
  output.transfer_params = R"({"remote_port":1})";
  output.prompt_logprobs = {{{7, -2.f}, 4, {{8, -1.f}}}};
  output.error = Error{ErrorCode::overloaded, "why", "prompt"};
  return output;
}

EngineStats stats() {
  EngineStats stats;
  stats.num_running = 1;
  stats.late_allocations = 15;
  stats.num_waiting = 2;
  stats.num_waiting_deferred = 3;
  stats.num_blocks = 4;
  stats.num_free_blocks = 5;
  stats.kv_cache_usage = 0.5;
  stats.prefix_cache_queries = 6;
  stats.prefix_cache_hits = 7;
  stats.prompt_tokens = 8;
  stats.generation_tokens = std::int64_t{9} << 40;
  stats.preemptions = 10;
  stats.steps = 11;
  stats.step_tokens = 12;
  stats.step_requests = 13;
  return stats;
}

Ready ready() {
  Ready ready;
  ready.engine = EngineId{3};
  ready.version = "1.2.3";
  ready.max_model_len = 8192;
  ready.num_gpu_blocks = 1000;
  ready.block_size = 16;
  ready.groups = {{"full_attention", 528, 16, 270'336, 6, 270'336},
                  {"mamba", 8192, 8192, 270'336, 18, 268'288}};
  ready.kv_cache_size_tokens = 15'984;
  ready.max_concurrency = 1.95;
  ready.dtype = "bfloat16";
  ready.kv_cache_dtype = "float32";
  ready.model_fingerprint = "0123456789abcdef";
  ready.dp_stats_address = "tcp://a:1";
  ready.device = "cuda:0";
  ready.vocab_size = 151'936;
  ready.startup_seconds = 1.5;
  ready.mamba_cache_mode = "adaptive";
  ready.memory = {{"weights", 1'000'000, 1'000'000, 0}, {"step_inputs", 4096, 4096, 8192}};
  return ready;
}

}  // namespace

std::vector<Command> sample_commands() {
  AddRequest add;
  add.id = RequestId{77};
  add.prompt = {1, 2, 300, 70'000};
  add.sampling = sampling();
  add.eos_token_ids = {2, 3};
  add.priority = -5;
  add.cache_salt = std::string("s\0lt", 4);
  add.transfer_params = "{}";
  add.arrival = at(123'456);
  return {Configure{"0.1.0", config()}, add, AbortRequest{RequestId{78}}};
}

std::vector<EngineEvent> sample_events() {
  StepOutput step;
  step.tokens = {{RequestId{1}, 10}, {RequestId{2}, 20}};
  step.requests = {output()};
  step.time = at(99);
  step.stats = stats();
  return {Hello{EngineId{3}, "0.1.0"}, StartupProgress{"loading weights", 0.5}, ready(), step,
          EngineDead{EngineId{3}, "out of memory"}};
}

}  // namespace quire::test
