#include "engine/core/engine_core.h"
#include "engine/core/fingerprint.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/engine/core/stepped_engine.h"

namespace quire::test {
namespace {

using Bench = SteppedEngine;

std::vector<TokenId> prompt_of(int length, int salt = 0) {
  std::vector<TokenId> prompt(length);
  for (int i = 0; i < length; ++i) prompt[i] = 1 + (i * 37 + salt * 11) % 1000;
  return prompt;
}

AddRequest endless(int prompt_length, int max_tokens, int salt = 0) {
  AddRequest request = greedy_request(prompt_of(prompt_length, salt), max_tokens);
  request.sampling.ignore_eos = true;
  return request;
}

bool all_free(const EngineStats& stats) { return stats.num_free_blocks == stats.num_blocks; }

TEST_CASE("what is ready is what was planned", "[engine][core]") {
  Bench bench;
  const Ready& ready = bench.core.ready();
  const KvPlan& plan = bench.core.plan().kv;
  CHECK(ready.num_gpu_blocks == 1025);
  CHECK(ready.num_gpu_blocks == plan.num_blocks);
  CHECK(ready.max_model_len == 1024);
  CHECK(ready.block_size == plan.block_size);
  REQUIRE(ready.groups.size() == 1);
  CHECK(ready.groups[0].kind == "full_attention");
  CHECK(ready.groups[0].layers == static_cast<int>(plan.groups()[0].layers.size()));
  CHECK(ready.groups[0].page_bytes == static_cast<std::int64_t>(plan.groups()[0].page_bytes));
  CHECK(ready.kv_cache_size_tokens == plan.kv_cache_size_tokens);
  CHECK(ready.dtype == "bfloat16");
  CHECK(ready.device == "cpu");
  CHECK(ready.vocab_size == 1536);
  CHECK(ready.model_fingerprint.size() == 16);
  CHECK(bench.core.stats().num_blocks == 1024);  // without the null block
}

TEST_CASE("the fingerprint tells weights and dtypes apart", "[engine][core]") {
  EngineConfig config = tiny_config();
  ModelConfig model;
  const auto of = [&](DType dtype, int longest_context = 100) {
    return model_fingerprint(config, model, dtype, longest_context);
  };
  const std::string tiny = of(DType::bf16);
  CHECK(tiny == of(DType::bf16));
  CHECK(tiny == of(DType::bf16, 200));
  CHECK(tiny != of(DType::f32));
  model.rope.kind = RopeKind::dynamic;  // its frequencies are made for the longest context
  CHECK(of(DType::bf16) != of(DType::bf16, 200));
  model = {};
  config.model.path = "models/quire-tiny-hybrid";
  CHECK(tiny != of(DType::bf16));
}

TEST_CASE("kept blocks are of use where every layer stores the same", "[engine][core]") {
  const EngineConfig config = tiny_config();
  const auto of = [&](const LayerCache& layer, const std::string& device = "cpu") {
    return cache_fingerprint(config, "model", device, 16, std::span(&layer, 1));
  };
  LayerCache attention{.page_bytes = 4096, .block_size = 16, .kernel_block_size = 16, .spec = {}};
  const std::string before = of(attention);
  CHECK(before == of(attention));
  CHECK(before != of(attention, "another"));
  attention.spec.dtype = DType::f16;  // as wide
  CHECK(before != of(attention));
  LayerCache state = attention;
  state.spec.kind = KvKind::mamba;
  state.spec.states = {{.shape = {4, 8}, .dtype = DType::bf16}};
  const std::string states = of(state);
  state.spec.states[0].dtype = DType::f16;
  CHECK(states != of(state));
}

TEST_CASE("an abort frees blocks at once", "[engine][core]") {
  Bench bench;
  const RequestId id = bench.add(endless(100, 500));
  const RequestId other = bench.add(endless(50, 20, 1));
  for (int i = 0; i < 5; ++i) bench.step();
  CHECK_FALSE(all_free(bench.core.stats()));
  bench.core.abort(id);
  bench.step();
  CHECK(bench.core.stats().num_running == 1);
  const auto so_far = bench.outputs[id].token_ids.size();
  bench.run();
  CHECK(all_free(bench.core.stats()));
  CHECK(bench.outputs[id].token_ids.size() == so_far);
  CHECK(bench.outputs[other].token_ids.size() == 20);
}

TEST_CASE("an abort while steps overlap frees blocks a step later", "[engine][core]") {
  Bench bench(tiny_config(), pretend_backend);
  const RequestId id = bench.add(endless(100, 500));
  for (int i = 0; i < 5; ++i) bench.step();
  bench.core.abort(id);
  bench.run();
  CHECK(all_free(bench.core.stats()));
}

TEST_CASE("a request ends by length, by the context, by a stop token", "[engine][core]") {
  EngineConfig config = tiny_config();
  config.model.max_model_len = 128;
  Bench bench(config);
  const RequestOutput by_length = bench.finish(endless(10, 7));
  CHECK(by_length.finish_reason == FinishReason::length);
  CHECK(by_length.token_ids.size() == 7);

  const RequestOutput by_context = bench.finish(endless(100, 500));
  CHECK(by_context.finish_reason == FinishReason::length);
  CHECK(by_context.token_ids.size() == 28);

  AddRequest request = endless(10, 7);
  request.sampling.stop_token_ids = {by_length.token_ids[3]};
  const RequestOutput by_token = bench.finish(request);
  CHECK(by_token.finish_reason == FinishReason::stop);
  CHECK(by_token.stop_token == by_length.token_ids[3]);
  const auto first =
      std::find(by_length.token_ids.begin(), by_length.token_ids.end(), by_length.token_ids[3]);
  CHECK(by_token.token_ids == std::vector<TokenId>(by_length.token_ids.begin(), std::next(first)));
}

TEST_CASE("a request that cannot run ends alone, with the reason", "[engine][core]") {
  Bench bench;
  AddRequest hot = endless(10, 5);
  hot.sampling.temperature = -2;
  const RequestId bad = bench.add(hot);
  const RequestId too_long = bench.add(endless(2000, 5));
  const RequestId good = bench.add(endless(10, 5));
  bench.run();
  for (const RequestId id : {bad, too_long}) {
    CHECK(bench.outputs[id].finish_reason == FinishReason::error);
    REQUIRE(bench.outputs[id].error);
    CHECK(bench.outputs[id].error->code == ErrorCode::invalid_argument);
  }
  CHECK(bench.outputs[good].token_ids.size() == 5);
}

TEST_CASE("a second run finds its prefix and says so", "[engine][core]") {
  Bench bench;
  const RequestOutput first = bench.finish(endless(200, 10));
  CHECK(first.num_cached_tokens == 0);
  const RequestOutput second = bench.finish(endless(200, 10));
  CHECK(second.num_cached_tokens == 192);  // whole blocks, never the last token
  CHECK(second.token_ids == first.token_ids);
  AddRequest salted = endless(200, 10);
  salted.cache_salt = "someone else";
  CHECK(bench.finish(salted).num_cached_tokens == 0);
  CHECK(bench.core.stats().prefix_cache_hits == 192);
}

TEST_CASE("no step exceeds its token budget", "[engine][core]") {
  EngineConfig config = tiny_config();
  config.scheduler.max_num_batched_tokens = 48;
  Bench bench(config);
  for (int i = 0; i < 8; ++i) bench.add(endless(100 + i, 10, i));
  bench.run();
  CHECK(bench.max_step_tokens <= 48);
  CHECK(bench.max_step_tokens > 40);
}

TEST_CASE("who gives its own blocks back leaves the others running", "[engine][core]") {
  EngineConfig config = tiny_config();
  config.model.max_model_len = 400;
  config.cache.num_gpu_blocks_override = 29;  // as many for each when there are no more
  config.scheduler.policy = SchedulingPolicy::priority;
  SteppedEngine engine(config);
  const auto request_of = [](int first, int priority) {
    std::vector<TokenId> prompt;
    for (int i = 0; i < 80; ++i) prompt.push_back(first + i);
    AddRequest request = greedy_request(std::move(prompt), 300);
    request.sampling.ignore_eos = true;
    request.priority = priority;
    return request;
  };
  const RequestId low = engine.add(request_of(300, 5));  // the first in the batch: asks first
  engine.step();
  const RequestId high = engine.add(request_of(400, 0));
  while (engine.core.has_work()) {
    engine.step();
    REQUIRE((!engine.core.is_idle() || !engine.core.has_work()));
  }
  CHECK(engine.core.stats().preemptions > 0);
  CHECK(engine.outputs[low].token_ids.size() == 300);
  CHECK(engine.outputs[high].token_ids.size() == 300);
}

TEST_CASE("times of a request are in order", "[engine][core]") {
  Bench bench;
  const RequestOutput output = bench.finish(endless(100, 5));
  CHECK(output.times.queued <= output.times.scheduled);
  CHECK(output.times.scheduled < output.times.first_token);
  CHECK(output.times.first_token < output.times.last_token);
}

TEST_CASE("a seed repeats its answer", "[engine][core]") {
  AddRequest request = endless(20, 40);
  request.sampling.temperature = 1;
  request.sampling.seed = 5;
  Bench bench;
  const auto first = bench.finish(request).token_ids;
  CHECK(bench.finish(request).token_ids == first);
  request.sampling.seed = 6;
  CHECK(bench.finish(request).token_ids != first);
}

TEST_CASE("greedy log-probabilities are of the chosen, most probable token", "[engine][core]") {
  Bench bench;
  AddRequest request = endless(30, 6);
  request.sampling.logprobs = 2;
  const RequestOutput output = bench.finish(request);
  REQUIRE(output.logprobs.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    const PositionLogprobs& position = output.logprobs[i];
    CHECK(position.chosen.token == output.token_ids[i]);
    CHECK(position.rank == 1);
    REQUIRE(position.top.size() == 2);
    CHECK(position.top[0].token == output.token_ids[i]);
    CHECK(position.top[0].logprob == position.chosen.logprob);
    CHECK(position.top[1].logprob <= position.top[0].logprob);
    CHECK(position.chosen.logprob <= 0);
  }
}

TEST_CASE("a prompt's log-probabilities do not depend on its chunks", "[engine][core]") {
  AddRequest request = endless(90, 3);
  request.sampling.prompt_logprobs = 1;
  EngineConfig config = tiny_config();
  const auto whole = Bench(config).finish(request).prompt_logprobs;
  config.scheduler.max_num_batched_tokens = 32;
  const auto chunked = Bench(config).finish(request).prompt_logprobs;
  REQUIRE(whole.size() == 89);
  REQUIRE(chunked.size() == 89);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    CHECK(whole[i].chosen.token == request.prompt[i + 1]);
    CHECK(whole[i].chosen.logprob == Approx(chunked[i].chosen.logprob).margin(0.2));
    CHECK(whole[i].top.size() == 1);
  }
}

TEST_CASE("penalties work while steps overlap", "[engine][core]") {
  AddRequest request = endless(20, 60);
  request.sampling.repetition_penalty = 1.3f;
  request.sampling.frequency_penalty = 0.5f;
  const auto one_by_one = Bench().finish(request).token_ids;
  const auto overlapping = Bench(tiny_config(), pretend_backend).finish(request).token_ids;
  CHECK(one_by_one.size() == 60);
  CHECK(one_by_one == overlapping);
  CHECK(one_by_one != Bench().finish(endless(20, 60)).token_ids);
}

TEST_CASE("a random model of the configured shape runs", "[engine][core]") {
  EngineConfig config = tiny_config();
  config.model.load_format = LoadFormat::dummy;
  config.model.dtype = DType::f32;
  Bench bench(config);
  CHECK(bench.core.ready().dtype == "float32");
  CHECK(bench.finish(endless(40, 9)).token_ids.size() == 9);
}

}  // namespace
}  // namespace quire::test
