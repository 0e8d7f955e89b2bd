// An engine whose matrix products are an emulated cuBLASLt's, which offers several algorithms or
// refuses.

#include <catch2/catch.hpp>

#include "engine/core/engine_core.h"
#include "tests/cuda_emulation/cublaslt.h"
#include "tests/engine/core/emulated_backend.h"
#include "tests/engine/core/live_engine.h"

namespace quire::test {
namespace {

using emulation::BlasProduct;

struct FreshBlas {
  FreshBlas() { emulation::blas() = {}; }
  ~FreshBlas() { emulation::blas() = {}; }
  FreshBlas(const FreshBlas&) = delete;
  FreshBlas& operator=(const FreshBlas&) = delete;
};

std::unique_ptr<EngineCore> start() {
  EngineConfig config = tiny_config();
  config.device = DeviceKind::cuda;
  config.cpu_threads = 0;
  config.model.max_model_len = 256;
  config.cache.num_gpu_blocks_override = 33;
  config.scheduler.max_num_seqs = 2;
  config.scheduler.max_num_batched_tokens = 48;
  EngineBackend backend = emulated_backend();
  backend.ops = make_cuda_ops(*backend.device, {.choosing_seconds = 600});  // an emulation is slow
  return std::make_unique<EngineCore>(config, EngineId{0}, std::move(backend),
                                      [](std::string_view, double) {});
}

std::vector<TokenId> answer(EngineCore& engine, std::uint64_t id, int num_prompt) {
  AddRequest request;
  request.id = RequestId{id};
  for (int i = 0; i < num_prompt; ++i) request.prompt.push_back(TokenId{(7 * i + 3) % 380});
  request.sampling.max_tokens = 6;
  request.sampling.ignore_eos = true;
  request.sampling.temperature = 0;
  request.sampling.logprobs = 0;  // so that each step has an output of the request
  engine.add(std::move(request));
  std::vector<TokenId> tokens;
  while (engine.has_work()) {
    for (const RequestOutput& output : engine.step().requests) {
      REQUIRE_FALSE(output.error);
      tokens.insert(tokens.end(), output.token_ids.begin(), output.token_ids.end());
    }
  }
  return tokens;
}

}  // namespace

TEST_CASE("an engine multiplies with what was the fastest while it warmed up", "[engine][cuda]") {
  const FreshBlas fresh;
  emulation::blas().algorithms = 3;
  emulation::blas().microseconds = [](const BlasProduct& p) { return 9. - p.algorithm; };
  const auto engine = start();
  emulation::blas().records = true;
  REQUIRE(answer(*engine, 1, 40).size() == 6);
  REQUIRE_FALSE(emulation::blas().runs.empty());
  for (const BlasProduct& run : emulation::blas().runs) {
    INFO(run.tokens << " tokens, " << run.k << " to " << run.n);
    CHECK(run.algorithm == 2);
  }
}

TEST_CASE("an engine goes on where cuBLASLt refuses its products", "[engine][cuda]") {
  const FreshBlas fresh;
  const auto engine = start();
  emulation::blas().records = true;
  const auto expected = answer(*engine, 1, 40), longer = answer(*engine, 2, 23);
  REQUIRE_FALSE(emulation::blas().runs.empty());
  emulation::blas().runs.clear();
  emulation::blas().refuses_run = [](const BlasProduct&) { return true; };
  CHECK(answer(*engine, 3, 40) == expected);
  CHECK(answer(*engine, 4, 23) == longer);
  CHECK(emulation::blas().runs.empty());
  CHECK(answer(*start(), 1, 40) == expected);  // from the first product on
}

}  // namespace quire::test
