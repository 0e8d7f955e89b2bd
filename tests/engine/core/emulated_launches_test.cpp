// How many kernels a decode step launches, on the emulated CUDA backend: what a small model's time
// is made of.

#include <catch2/catch.hpp>

#include "engine/core/engine_core.h"
#include "tests/cuda_emulation/launch.h"
#include "tests/engine/core/emulated_backend.h"
#include "tests/engine/core/live_engine.h"

namespace quire::test {
namespace {

EngineConfig tiny_cuda() {
  EngineConfig config = tiny_config();
  config.device = DeviceKind::cuda;
  config.cpu_threads = 0;
  config.model.path = "models/quire-tiny";
  config.model.dtype = DType::bf16;
  config.model.max_model_len = 512;
  config.cache.num_gpu_blocks_override = 129;
  config.scheduler.max_num_batched_tokens = 512;
  config.scheduler.max_num_seqs = 16;
  return config;
}

AddRequest request_of(int id, int num_prompt) {
  AddRequest request;
  request.id = RequestId{static_cast<std::uint64_t>(id)};
  request.prompt.assign(static_cast<std::size_t>(num_prompt), TokenId{7});
  request.sampling.max_tokens = 40;
  request.sampling.ignore_eos = true;
  request.sampling.temperature = 0;
  return request;
}

// Of a step with a token of each of so many requests; when one enters a block there is one more.
std::uint64_t launches_of_step(int num_requests, int num_prompt) {
  EngineConfig config = tiny_cuda();
  config.graphs.enforce_eager = true;
  EngineCore engine(config, EngineId{0}, emulated_backend(), [](std::string_view, double) {});
  for (int i = 1; i <= num_requests; ++i) engine.add(request_of(i, num_prompt));
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) engine.step();
    return emulation::num_launches();
  };
  const std::uint64_t start = steps(8);  // prompts and what is made once
  return (steps(8) - start) / 8;
}

// Of a step with a prompt of 20 tokens beside three requests that decode. What a graph replays is
// not launched.
std::uint64_t launches_beside_a_prompt(bool enforce_eager) {
  EngineConfig config = tiny_cuda();
  config.graphs.enforce_eager = enforce_eager;
  if (!enforce_eager) config.graphs.capture_sizes = {4, 32};
  EngineCore engine(config, EngineId{0}, emulated_backend(), [](std::string_view, double) {});
  for (int i = 1; i <= 3; ++i) engine.add(request_of(i, 5));
  for (int i = 0; i < 4; ++i) engine.step();
  engine.add(request_of(4, 20));
  const std::uint64_t before = emulation::num_launches();
  engine.step();
  return emulation::num_launches() - before;
}

}  // namespace

TEST_CASE("a decode step launches five kernels a dense layer", "[engine][cuda]") {
  // Products of queries, keys and values with their norm, of the output, which is added, of gates
  // and ups with their norm and activation, and of the sum, which is added; attention, which makes
  // its own heads. The others: ids, tables and slots, embedding, the last norm, the product of the
  // vocabulary, two to sample.
  constexpr std::uint64_t kLayers = 4, kOther = 8;
  CHECK(launches_of_step(1, 5) == kLayers * 5 + kOther);
  CHECK(launches_of_step(8, 5) == kLayers * 5 + kOther);
  CHECK(launches_of_step(1, 400) == kLayers * 5 + kOther);  // who brings the last part merges them
  // More rows: products of the library's, which are not counted, an activation, two norms and heads.
  CHECK(launches_of_step(9, 5) == kLayers * 5 + kOther - 1);
}

TEST_CASE("a step with a prompt launches what it samples behind its graph", "[engine][cuda]") {
  // A prompt's block; the rows that sample, their logits, two to sample.
  constexpr std::uint64_t kReplayed = 5;
  CHECK(launches_beside_a_prompt(false) == kReplayed);
  // Ids, tables, slots and the embedding, and of a layer two norms, heads, attention of prompts and
  // of what decodes, and an activation; the last norm is the first of a layer that is not there.
  CHECK(launches_beside_a_prompt(true) == kReplayed + 4 + 4 * 6 + 1);
}

}  // namespace quire::test
