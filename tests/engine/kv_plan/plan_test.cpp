#include "engine/kv_plan/plan.h"

#include <catch2/catch.hpp>

#include "engine/kv_plan/latent_groups.h"

namespace quire {
namespace {

KvSpec spec_of(KvKind kind, int window = 0) {
  return {.kind = kind,
          .block_size = 16,
          .num_kv_heads = 2,
          .head_size = 64,
          .dtype = DType::f32,
          .sliding_window = window};
}

constexpr std::int64_t kPage = 16384;

KvPlanInput input_of(std::vector<LayerKvSpec> layers, std::int64_t available, std::int64_t length) {
  KvPlanInput input;
  input.workers.push_back({std::move(layers), available});
  input.max_model_len = length;
  input.max_num_batched_tokens = 2048;
  return input;
}

std::vector<LayerKvSpec> two_full() {
  return {{"a", spec_of(KvKind::full)}, {"b", spec_of(KvKind::full)}};
}

}  // namespace

TEST_CASE("A request that fits max_model_len fits the pool, whatever the override") {
  for (std::int64_t override = 1; override <= 64; ++override) {
    KvPlanInput input = input_of(two_full(), 0, 1 << 20);
    input.num_gpu_blocks_override = override;
    input.auto_fit = true;
    const auto plan = make_kv_plan(input);
    CAPTURE(override);
    if (override == 1) {  // the null block alone
      REQUIRE(plan.has_error());
      CHECK(plan.error().code == KvPlanErrorCode::autofit_zero);
      continue;
    }
    REQUIRE(plan.has_value());
    CHECK(plan->num_blocks == override);
    CHECK(plan->max_model_len == (override - 1) * 16);
    CHECK(plan->largest_request_tokens == plan->max_model_len);

    input.auto_fit = false;
    input.max_model_len = plan->max_model_len;
    CHECK(make_kv_plan(input).has_value());
    input.max_model_len += 1;
    const auto refused = make_kv_plan(input);
    REQUIRE(refused.has_error());
    CHECK(refused.error().estimated_max_model_len == plan->max_model_len);
  }
}

TEST_CASE("The advised memory is enough, and one byte less is not") {
  const auto refused = make_kv_plan(input_of(two_full(), 4 * kPage, 512));
  REQUIRE(refused.has_error());
  const std::int64_t enough = 33 * 2 * kPage;
  CHECK(refused.error().detail.find("CacheConfig::kv_cache_memory_bytes " +
                                    std::to_string(enough)) != std::string::npos);
  CHECK(make_kv_plan(input_of(two_full(), enough, 512)).has_value());
  CHECK(make_kv_plan(input_of(two_full(), enough - 1, 512)).has_error());
}

TEST_CASE("Windows bound what a long request takes") {
  const std::vector<LayerKvSpec> layers = {{"full", spec_of(KvKind::full)},
                                           {"window", spec_of(KvKind::sliding_window, 128)}};
  const auto plan = make_kv_plan(input_of(layers, 2000 * kPage, 16384)).value();
  // 1024 for the full layer; (127 + 2048) / 16 and one more for the window.
  CHECK(plan.workers.front().needed_blocks == 1024 + 137);
  CHECK(plan.max_concurrency == Approx(2000.0 / 1161));
  CHECK(plan.largest_request_tokens == (1999 - 137) * 16);
}

TEST_CASE("Only windows: any length fits once the window does") {
  const std::vector<LayerKvSpec> layers = {{"window", spec_of(KvKind::sliding_window, 128)}};
  const auto plan = make_kv_plan(input_of(layers, 138 * kPage, 1 << 20)).value();
  CHECK(plan.max_model_len == 1 << 20);
  CHECK(make_kv_plan(input_of(layers, 137 * kPage, 1 << 20)).has_error());
}

TEST_CASE("A model that remembers nothing needs no memory") {
  const auto plan = make_kv_plan(input_of({}, 0, 100)).value();
  CHECK(plan.num_blocks == 1);
  CHECK(plan.groups().empty());
  CHECK(plan.workers.front().total_bytes() == 0);
}

TEST_CASE("Encoder layers and nonsense are refused with a code") {
  const auto code = [](const KvPlanInput& input) { return make_kv_plan(input).error().code; };
  CHECK(code(input_of({{"x", spec_of(KvKind::cross_attention)}}, 1 << 30, 64)) ==
        KvPlanErrorCode::unsupported_kind);
  CHECK(code(input_of({{"x", spec_of(KvKind::encoder_only)}}, 1 << 30, 64)) ==
        KvPlanErrorCode::unsupported_kind);
  CHECK(code(input_of(two_full(), 1 << 30, 0)) == KvPlanErrorCode::invalid_input);
  KvSpec empty = spec_of(KvKind::full);
  empty.block_size = 0;
  CHECK(code(input_of({{"x", empty}}, 1 << 30, 64)) == KvPlanErrorCode::invalid_input);
  KvPlanInput no_workers;
  no_workers.max_model_len = 1;
  CHECK(code(no_workers) == KvPlanErrorCode::invalid_input);
}

TEST_CASE("Context parallelism and groups of several kinds exclude each other") {
  KvPlanInput input = input_of(
      {{"full", spec_of(KvKind::full)},
       {"chunk", {.kind = KvKind::mamba, .block_size = 16, .states = {{{4096}, DType::f32}}}}},
      1 << 30, 512);
  REQUIRE(make_kv_plan(input).has_value());
  input.decode_context_parallel = 2;
  CHECK(make_kv_plan(input).error().code == KvPlanErrorCode::cp_with_several_groups);
}

TEST_CASE("The kernel block divides the block where kernels read only some sizes") {
  KvSpec spec = spec_of(KvKind::full);
  spec.block_size = 1056;
  KvPlanInput input = input_of({{"x", spec}}, 1 << 30, 512);
  CHECK(make_kv_plan(input)->groups().front().kernel_block_size == 1056);
  input.attention_kernels = {{16, false}, {32, false}, {64, false}};
  CHECK(make_kv_plan(input)->groups().front().kernel_block_size == 32);
  input.attention_kernels = {{64, false}};
  CHECK(make_kv_plan(input).error().code == KvPlanErrorCode::no_common_block_size);
}

TEST_CASE("Tuples per group waste least") {
  CHECK(least_padding({11, 21, 21, 20}, 11) == 11);
  CHECK(least_padding({30, 61, 62, 30}, 30) == 31);
  CHECK(least_padding({5, 7}, 1) == 1);
}

}  // namespace quire
