#include "engine/kv_plan/model_plan.h"

#include <catch2/catch.hpp>

namespace quire {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

EngineConfig config_for(std::int64_t max_model_len = 0) {
  EngineConfig config;
  config.model.path = "a model";
  config.model.max_model_len = max_model_len;
  return config;
}

KvSpec attention(int kv_heads, int head_size) {
  return {.kind = KvKind::full, .num_kv_heads = kv_heads, .head_size = head_size};
}

KvSpec delta_net() {  // Qwen3-Next's on one rank
  return {.kind = KvKind::mamba,
          .states = {{{3, 8192}, DType::bf16}, {{32, 128, 128}, DType::bf16}}};
}

ModelMemory dense(int layers) {
  ModelMemory model{.layers = {}, .model_max_len = 8192};
  for (int i = 0; i < layers; ++i)
    model.layers.push_back({"l" + std::to_string(i), attention(8, 128)});
  return model;
}

ModelMemory hybrid(int layers) {
  ModelMemory model{.layers = {}, .model_max_len = 8192};
  for (int i = 0; i < layers; ++i)
    model.layers.push_back({"l" + std::to_string(i), i % 4 == 3 ? attention(2, 256) : delta_net()});
  return model;
}

}  // namespace

TEST_CASE("A dense model gets the backend's block and all of the memory") {
  const auto plan = make_model_plan(config_for(), dense(4), DeviceKind::cpu, {kGiB}).value();
  CHECK(plan.kv.groups().size() == 1);
  CHECK(plan.kv.block_size == 16);
  CHECK(plan.kv.num_blocks == 4096);  // 4 layers · 16 tokens · 4 KiB
  CHECK(plan.kv.max_model_len == 8192);
  CHECK(plan.kv.workers.front().total_bytes() == kGiB);
  CHECK(plan.notes.empty());
}

TEST_CASE("A hybrid's attention block grows to hold a state") {
  EngineConfig config = config_for();
  SECTION("with prefix caching, states are kept where blocks end") {
    const auto plan = make_model_plan(config, hybrid(8), DeviceKind::cpu, {kGiB}).value();
    CHECK(plan.kv.block_size == 544);
    CHECK(plan.state_cache_mode == StateCacheMode::adaptive);
    CHECK(plan.state_padding_percent == Approx(1.4925373134));
    for (const KvGroup& group : plan.kv.groups()) {
      CHECK(group.block_size == 544);
      CHECK(group.page_bytes == 1114112);
      CHECK(group.kernel_block_size == 544);
    }
  }
  SECTION("in vLLM's modes too") {
    config.cache.mamba_cache_mode = StateCacheMode::align;
    const auto align = make_model_plan(config, hybrid(8), DeviceKind::cpu, {kGiB}).value();
    CHECK(align.state_cache_mode == StateCacheMode::align);
    CHECK(align.kv.groups().front().block_size == 544);
    config.cache.mamba_cache_mode = StateCacheMode::all;
    config.cache.mamba_block_size = 64;
    const auto all = make_model_plan(config, hybrid(8), DeviceKind::cpu, {kGiB}).value();
    CHECK(all.state_cache_mode == StateCacheMode::all);
    CHECK(all.kv.groups().front().block_size == 576);
  }
  SECTION("without prefix caching a request has one state, whatever its length") {
    config.cache.enable_prefix_caching = false;
    const auto plan = make_model_plan(config, hybrid(8), DeviceKind::cpu, {kGiB}).value();
    CHECK(plan.state_cache_mode == StateCacheMode::none);
    CHECK(plan.kv.groups().front().block_size == 8192);
    CHECK(plan.kv.block_size == 544);  // not the state's
  }
  SECTION("and ends where a chunk of the device does") {
    ModelMemory model = hybrid(8);
    model.state_chunk = 64;
    const auto plan = make_model_plan(config, model, DeviceKind::cpu, {kGiB}).value();
    CHECK(plan.kv.groups().front().block_size == 576);
    CHECK(plan.state_chunk == 64);
    config.cache.enable_prefix_caching = false;
    CHECK(make_model_plan(config, model, DeviceKind::cpu, {kGiB})->kv.block_size == 544);
  }
  SECTION("a smaller CacheConfig::block_size is raised, and that is said") {
    config.cache.block_size = 64;
    const auto plan = make_model_plan(config, hybrid(8), DeviceKind::cpu, {kGiB}).value();
    CHECK(plan.kv.block_size == 576);
    REQUIRE(plan.notes.size() == 1);
    CHECK(plan.notes.front().find("576") != std::string::npos);
  }
}

TEST_CASE("Answers that may not depend on where steps end need states in float32") {
  EngineConfig config;
  CHECK_FALSE(kv_spec_options(config, DType::bf16).recurrent_state_dtype.has_value());
  config.deterministic = true;
  CHECK(kv_spec_options(config, DType::bf16).recurrent_state_dtype == DType::f32);
}

TEST_CASE("Keys and values have the dtype of the flag, of the checkpoint, or of the model") {
  EngineConfig config = config_for();
  ModelMemory model = dense(4);
  const auto chosen = [&] {
    const KvSpecOptions options = kv_spec_options(config, model.dtype, model.published_cache_dtype);
    for (LayerKvSpec& layer : model.layers) layer.spec.dtype = options.cache_dtype;
    const auto plan = make_model_plan(config, model, DeviceKind::cpu, {kGiB}).value();
    CHECK(plan.cache_dtype == options.cache_dtype);
    return std::pair(plan.cache_dtype, plan.kv.num_blocks);
  };
  const std::pair bf16{DType::bf16, std::int64_t{4096}}, fp8{DType::fp8_e4m3, std::int64_t{8192}};
  CHECK(chosen() == bf16);
  model.published_cache_dtype = DType::fp8_e4m3;
  CHECK(chosen() == fp8);
  config.cache.cache_dtype = DType::bf16;
  CHECK(chosen() == bf16);
  model.published_cache_dtype.reset();
  config.cache.cache_dtype = DType::fp8_e4m3;
  CHECK(chosen() == fp8);
}

TEST_CASE("Auto-fit finds the longest request that the pool holds beside the null block") {
  const auto plan = make_model_plan(config_for(kAutoFit), dense(4), DeviceKind::cpu, {33 * 262144});
  CHECK(plan->kv.max_model_len == 512);
  EngineConfig config = config_for(kAutoFit);
  config.cache.enable_prefix_caching = false;
  const auto states = make_model_plan(config, hybrid(4), DeviceKind::cpu, {8 * 1114112});
  // Three groups of states take a block each; attention has four left.
  CHECK(states->kv.max_model_len == 4 * 544);
  CHECK(states->kv.groups().front().block_size == states->kv.max_model_len);
}

TEST_CASE("A refusal names the flag, and its advice works") {
  EngineConfig config = config_for();
  const auto refused = make_model_plan(config, dense(4), DeviceKind::cpu, {33 * 262144});
  REQUIRE(refused.has_error());
  CHECK(refused.error().field == "admission");
  CHECK(refused.error().detail.find("ModelOptions::max_model_len 512") != std::string::npos);
  CHECK(refused.error().detail.find("CacheConfig::kv_cache_memory_bytes 134479872") !=
        std::string::npos);
  CHECK(make_model_plan(config_for(512), dense(4), DeviceKind::cpu, {33 * 262144}).has_value());
  CHECK(make_model_plan(config, dense(4), DeviceKind::cpu, {134479872}).has_value());
}

TEST_CASE("Who share a CPU's cache are advised what is enough for all of them") {
  for (const int engines : {1, 2, 3})
    for (const int ranks : {1, 2, 4})
      for (const std::int64_t length : {512, 1000, 8192}) {
        EngineConfig config = config_for(length);
        config.parallel.data_parallel_size = engines;
        config.parallel.tensor_parallel_size = ranks;
        const auto plan_with = [&](std::int64_t bytes) {
          config.cache.kv_cache_memory_bytes = bytes;
          return make_model_plan(config, dense(4), DeviceKind::cpu,
                                 {kv_cache_budget(config, DeviceKind::cpu, {})});
        };
        const std::string detail = plan_with(std::int64_t{1} << 20).error().detail;
        const std::string flag = "CacheConfig::kv_cache_memory_bytes ";
        const auto at = detail.find(flag);
        INFO(detail);
        REQUIRE(at != detail.npos);
        const std::int64_t advised = std::stoll(detail.substr(at + flag.size()));
        CHECK(plan_with(advised).has_value());
        CHECK(plan_with(advised - 1).has_error());
      }
}

TEST_CASE("What would have no effect on this model is refused") {
  struct Refusal {
    const char* field;
    bool hybrid;
    void (*change)(EngineConfig&);
  };
  const Refusal refusals[] = {
      {"ModelOptions::max_model_len", false, [](EngineConfig& c) { c.model.max_model_len = 8193; }},
      {"CacheConfig::mamba_block_size", false,
       [](EngineConfig& c) { c.cache.mamba_block_size = 64; }},
      {"CacheConfig::mamba_cache_mode", false,
       [](EngineConfig& c) { c.cache.mamba_cache_mode = StateCacheMode::align; }},
      {"CacheConfig::mamba_cache_mode", true,
       [](EngineConfig& c) { c.cache.mamba_cache_mode = StateCacheMode::none; }},
      {"CacheConfig::mamba_cache_mode", true,
       [](EngineConfig& c) {
         c.cache.mamba_cache_mode = StateCacheMode::adaptive;
         c.model.max_model_len = 545;  // a block and a token, and no room for an answer
       }},
      {"CacheConfig::mamba_block_size", true,
       [](EngineConfig& c) { c.cache.mamba_cache_mode = StateCacheMode::all; }},
      {"CacheConfig::mamba_ssm_cache_dtype", false,
       [](EngineConfig& c) { c.cache.mamba_ssm_cache_dtype = DType::f32; }},
      {"CacheConfig::mamba_ssm_cache_dtype", true,
       [](EngineConfig& c) {
         c.deterministic = true;
         c.cache.mamba_ssm_cache_dtype = DType::bf16;
       }},
      {"CacheConfig::cache_dtype", false, [](EngineConfig& c) { c.cache.cache_dtype = DType::i8; }},
      {"CacheConfig::hybrid_manager=false", false,
       [](EngineConfig& c) { c.cache.hybrid_manager = false; }},
      {"CacheConfig::num_gpu_blocks_override", false,
       [](EngineConfig& c) { c.cache.num_gpu_blocks_override = 5000; }},
      {"SchedulerConfig::enable_chunked_prefill=false", false,
       [](EngineConfig& c) { c.scheduler.enable_chunked_prefill = false; }},
      {"SchedulerConfig::max_num_batched_tokens", true,
       [](EngineConfig& c) {
         c.cache.mamba_cache_mode = StateCacheMode::align;
         c.scheduler.max_num_batched_tokens = 512;
       }},
      {"SchedulerConfig::enable_chunked_prefill", true,
       [](EngineConfig& c) { c.scheduler.enable_chunked_prefill = false; }},
      {"SchedulerConfig::enable_chunked_prefill", true,
       [](EngineConfig& c) {
         c.cache.mamba_cache_mode = StateCacheMode::all;
         c.cache.mamba_block_size = 64;
         c.scheduler.enable_chunked_prefill = false;
       }},
      {"CacheConfig::hash_block_size", false, [](EngineConfig& c) { c.cache.hash_block_size = 7; }},
      {"no_common_block_size", false, [](EngineConfig& c) { c.cache.block_size = 24; }},
      {"hma_off_unify", true, [](EngineConfig& c) { c.cache.hybrid_manager = false; }},
  };
  for (const Refusal& refusal : refusals) {
    CAPTURE(refusal.field);
    EngineConfig config = config_for();
    refusal.change(config);
    const auto plan =
        make_model_plan(config, refusal.hybrid ? hybrid(8) : dense(4), DeviceKind::cpu, {kGiB});
    REQUIRE(plan.has_error());
    CHECK(plan.error().field == refusal.field);
  }
}

TEST_CASE("The plan says what a checkpoint of states costs, and how many fit") {
  const auto plan = make_model_plan(config_for(), hybrid(8), DeviceKind::cpu, {kGiB}).value();
  REQUIRE(plan.checkpoint.has_value());
  const WorkerKvPlan& worker = plan.kv.workers.front();
  CHECK(plan.checkpoint->num_blocks == 3);  // groups of two delta-net layers
  CHECK(plan.checkpoint->bytes == 3 * 2 * 1114112);
  const std::int64_t usable = plan.kv.num_blocks - 1;
  CHECK(plan.checkpoint->num_in_pool == usable / 3);
  // Attention's 16 blocks, and two states in each of three groups.
  CHECK(worker.needed_blocks == 16 + 6);
  CHECK(plan.checkpoint->num_beside_request == (usable - 22) / 3);
  EngineConfig config = config_for();
  config.cache.enable_prefix_caching = false;
  CHECK(!make_model_plan(config, hybrid(8), DeviceKind::cpu, {kGiB})->checkpoint);
  CHECK(!make_model_plan(config_for(), dense(4), DeviceKind::cpu, {kGiB})->checkpoint);
}

TEST_CASE("A cache that can never hit is announced with the reason") {
  const auto notes = [](std::int64_t max_model_len, bool caching = true) {
    EngineConfig config = config_for(max_model_len);
    config.cache.enable_prefix_caching = caching;
    return make_model_plan(config, hybrid(8), DeviceKind::cpu, {kGiB}).value().notes;
  };
  CHECK(notes(546).empty());
  CHECK(notes(545, false).empty());
  REQUIRE(notes(545).size() == 1);
  CHECK(notes(545).front().find("ModelOptions::max_model_len of at least 546") !=
        std::string::npos);
}

TEST_CASE("Advice asks for no more than there is") {
  const auto refusal = [](const EngineConfig& config, CacheMemory memory) {
    return make_model_plan(config, dense(4), DeviceKind::cpu, memory).error().detail;
  };
  const EngineConfig config = config_for();
  const auto has = [](const std::string& text, const char* what) {
    return text.find(what) != std::string::npos;
  };
  CHECK(has(refusal(config, {33 * 262144, 134479872}),
            "CacheConfig::kv_cache_memory_bytes 134479872"));
  const std::string too_small = refusal(config, {33 * 262144, 134479871});
  CHECK_FALSE(has(too_small, "CacheConfig::kv_cache_memory_bytes"));
  CHECK(has(too_small, "ModelOptions::max_model_len 512"));
  CHECK_FALSE(has(refusal(config, {262144, 262144}), "What works"));  // the null block alone
  EngineConfig blocks = config;
  blocks.cache.num_gpu_blocks_override = 20;
  CHECK(has(refusal(blocks, {134479872}), "CacheConfig::num_gpu_blocks_override 513"));
  CHECK_FALSE(has(refusal(blocks, {134479871}), "CacheConfig::num_gpu_blocks_override"));
}

TEST_CASE("A stretched model has its published length by default, and can be asked for more") {
  ModelMemory model = dense(4);
  model.default_max_len = 2048;
  const auto length = [&](std::int64_t asked) {
    return make_model_plan(config_for(asked), model, DeviceKind::cpu, {kGiB})->kv.max_model_len;
  };
  CHECK(length(0) == 2048);
  CHECK(length(8192) == 8192);
  CHECK(length(kAutoFit) == 8192);
  CHECK(make_model_plan(config_for(8193), model, DeviceKind::cpu, {kGiB}).error().field ==
        "ModelOptions::max_model_len");
}

TEST_CASE("The null block is no place for tokens") {
  const auto plan = make_model_plan(config_for(512), dense(4), DeviceKind::cpu, {33 * 262144});
  CHECK(plan->kv.num_blocks == 33);
  CHECK(plan->kv.usable_blocks() == 32);
  const auto sized = size_model(config_for(512), dense(4), DeviceKind::cpu);
  CHECK(sized->least_cache_bytes() == 33 * 262144);
}

TEST_CASE("The cache's share of a device") {
  EngineConfig config = config_for();
  const DeviceBudget budget{.total_bytes = 80 * kGiB, .other_bytes = 18 * kGiB};
  CHECK(kv_cache_budget(config, DeviceKind::cuda, budget) == 54 * kGiB);
  CHECK(kv_cache_budget(config, DeviceKind::cpu, budget) == 4 * kGiB);
  CHECK(kv_cache_budget(config, DeviceKind::cpu, {.total_bytes = 8 * kGiB}) == 2 * kGiB);
  CHECK(kv_cache_budget(config, DeviceKind::cpu,
                        {.total_bytes = 80 * kGiB, .request_bytes = kGiB / 64}) == kGiB / 4);
  config.cache.gpu_memory_utilization = 0.5;
  CHECK(kv_cache_budget(config, DeviceKind::cpu, budget) == 22 * kGiB);
  config.cache.kv_cache_memory_bytes = kGiB;
  CHECK(kv_cache_budget(config, DeviceKind::cuda, budget) == kGiB);
  // Engines of one process divide a CPU's; GPUs they have one each.
  config.parallel.data_parallel_size = 2;
  CHECK(kv_cache_budget(config, DeviceKind::cuda, budget) == kGiB);
  CHECK(kv_cache_budget(config, DeviceKind::cpu, budget) == kGiB / 2);
  // Blocks that are asked for are held against main memory, not against a default size.
  EngineConfig blocks = config_for();
  blocks.cache.num_gpu_blocks_override = 100;
  CHECK(kv_cache_budget(blocks, DeviceKind::cpu, budget) == 62 * kGiB);
}

}  // namespace quire
