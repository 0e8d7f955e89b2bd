#include "engine/scheduler/scheduler.h"

#include <array>
#include <catch2/catch.hpp>

#include "tests/engine/scheduler/scripted_connector.h"

namespace quire {
namespace {

using test::ScriptedConnector;

KvCacheConfig kv_config(int num_blocks) {
  KvCacheConfig config;
  config.num_blocks = num_blocks;
  config.groups.resize(1);
  config.groups[0].spec.block_size = 4;
  config.max_model_len = 32;
  config.max_num_batched_tokens = 16;
  config.scheduler_block_size = config.hash_block_size = 4;
  return config;
}

SchedulerOptions options() {
  SchedulerOptions options;
  options.max_num_seqs = 2;
  options.max_num_batched_tokens = 16;
  options.max_model_len = 32;
  return options;
}

RequestInit request(std::uint64_t id, int num_prompt, int max_tokens = 4) {
  RequestInit init;
  init.id = RequestId(id);
  for (int i = 0; i < num_prompt; ++i) init.prompt.push_back(static_cast<TokenId>(100 * id + i));
  init.sampling.max_tokens = max_tokens;
  return init;
}

// Runs one step in which every row that samples gets token 5.
StepResult step(Scheduler& scheduler, const TransferNews& news = {}) {
  const BatchPlan& plan = scheduler.schedule();
  std::vector<TokenId> sampled;
  for (const BatchRow& row : plan.rows) sampled.push_back(row.samples ? 5 : -1);
  return scheduler.commit(plan, {.sampled = sampled}, news);
}

}  // namespace

TEST_CASE("What can never run is refused with the number it exceeds", "[scheduler]") {
  KvCacheManager kv(kv_config(6));  // 5 usable blocks: 20 tokens
  Scheduler scheduler(options(), kv);
  const auto detail = [&](RequestInit init) {
    const auto added = scheduler.add(std::move(init));
    REQUIRE(!added);
    CHECK(added.error().code == ErrorCode::invalid_argument);
    return added.error().detail;
  };
  CHECK(detail(request(1, 0)) == "the prompt is empty");
  CHECK(detail(request(1, 32)) ==
        "the prompt has 32 tokens; the context holds 32, of which at least one is for the answer");
  CHECK(detail(request(1, 18)) == "a request of 22 tokens needs 6 KV cache blocks; there are 5");
  CHECK(scheduler.add(request(1, 16)).has_value());
  CHECK(detail(request(1, 4)) == "a request with this id is running");
}

TEST_CASE("The waiting queue is bounded by requests and by tokens", "[scheduler]") {
  KvCacheManager kv(kv_config(20));
  SchedulerOptions own = options();
  own.max_waiting_requests = 3;
  own.max_waiting_tokens = 20;
  Scheduler scheduler(own, kv);
  const auto code = [&](int id, int num_prompt) {
    const auto added = scheduler.add(request(static_cast<std::uint64_t>(id), num_prompt));
    return added ? std::nullopt : std::optional(added.error().code);
  };
  CHECK(code(1, 10) == std::nullopt);
  CHECK(code(2, 11) == ErrorCode::overloaded);
  CHECK(code(2, 5) == std::nullopt);
  CHECK(code(3, 5) == std::nullopt);
  CHECK(code(4, 1) == ErrorCode::overloaded);
  step(scheduler);  // two of them run
  CHECK(code(4, 1) == std::nullopt);
}

TEST_CASE("Abort ends a request in every state and frees its blocks", "[scheduler]") {
  KvCacheManager kv(kv_config(20));
  ScriptedConnector connector;
  Scheduler scheduler(options(), kv, &connector);
  const int free_before = kv.pool().num_free();
  const RequestId id(1);

  SECTION("waiting") { REQUIRE(scheduler.add(request(1, 8)).has_value()); }
  SECTION("running") {
    REQUIRE(scheduler.add(request(1, 8)).has_value());
    step(scheduler);
    REQUIRE(scheduler.find(id)->state == RequestState::running);
  }
  SECTION("waiting for its grammar") {
    RequestInit init = request(1, 8);
    init.sampling.constraint.emplace();
    REQUIRE(scheduler.add(std::move(init)).has_value());
    step(scheduler);
    REQUIRE(scheduler.find(id)->state == RequestState::waiting_for_grammar);
  }
  SECTION("while its prefix is loaded: the blocks stay until the load has ended") {
    connector.scripts[id] = {.num_external = 4, .async = true};
    REQUIRE(scheduler.add(request(1, 8)).has_value());
    step(scheduler);
    REQUIRE(scheduler.find(id)->state == RequestState::waiting_for_remote_kv);
    CHECK(scheduler.abort(id));
    CHECK(scheduler.has_work());
    CHECK(kv.pool().num_free() < free_before);
    CHECK(!scheduler.abort(id));
    step(scheduler, {.received = std::span(&id, 1)});
    CHECK(kv.pool().num_free() == free_before);
    CHECK(!scheduler.has_work());
    return;
  }
  CHECK(scheduler.abort(id));
  CHECK(!scheduler.abort(id));
  CHECK(kv.pool().num_free() == free_before);
  CHECK(!scheduler.has_work());
  CHECK(scheduler.schedule().finished == std::vector{id});
}

TEST_CASE("A request aborted while its step runs stays readable until the step is committed",
          "[scheduler]") {
  KvCacheManager kv(kv_config(20));
  SchedulerOptions own = options();
  own.async = true;
  own.pipeline_depth = 2;
  Scheduler scheduler(own, kv);
  REQUIRE(scheduler.add(request(1, 8)).has_value());
  const BatchPlan& first = scheduler.schedule();
  scheduler.abort(RequestId(1));
  const BatchPlan& second = scheduler.schedule();
  CHECK(first.rows.at(0).request->id() == RequestId(1));
  CHECK(second.empty());
  const std::vector<TokenId> sampled{5};
  CHECK(scheduler.commit(first, {.sampled = sampled}).requests.empty());
  scheduler.commit(second, {});
  CHECK(!scheduler.has_work());
}

TEST_CASE("A grammar that cannot be compiled ends its request with the error", "[scheduler]") {
  KvCacheManager kv(kv_config(20));
  Scheduler scheduler(options(), kv);
  RequestInit init = request(1, 8);
  init.sampling.constraint.emplace();
  REQUIRE(scheduler.add(std::move(init)).has_value());
  REQUIRE(scheduler.add(request(2, 8)).has_value());
  CHECK(step(scheduler).requests.size() == 1);  // the other one runs meanwhile
  CHECK(scheduler.stats().num_waiting_deferred == 1);
  scheduler.fail(RequestId(1), {ErrorCode::invalid_argument, "unbalanced brackets", {}});
  const StepResult result = step(scheduler);
  REQUIRE(result.requests.size() == 2);
  const RequestProgress& end = result.requests.back();
  CHECK(end.request->id() == RequestId(1));
  CHECK(end.finish_reason == FinishReason::error);
  CHECK(end.request->error.detail == "unbalanced brackets");
}

TEST_CASE("Requests that wait with loaded prefixes do not hold each other up", "[scheduler]") {
  KvCacheManager kv(kv_config(6));  // 5 usable blocks; each load takes two, each prompt five
  ScriptedConnector connector;
  SchedulerOptions own = options();
  own.reserve_full_prompt = false;
  Scheduler scheduler(own, kv, &connector);
  const std::vector<RequestId> ids{RequestId(1), RequestId(2)};
  for (const RequestId id : ids) {
    connector.scripts[id] = {.num_external = 8, .async = true};
    REQUIRE(scheduler.add(request(id.value, 17, 3)).has_value());
  }
  step(scheduler);
  step(scheduler, {.received = ids});
  int finished = 0;
  for (int i = 0; i < 40 && scheduler.has_work(); ++i) {
    for (const RequestProgress& progress : step(scheduler).requests) {
      finished += progress.finish_reason.has_value();
    }
  }
  CHECK(finished == 2);
}

// The step of its first beginning is still under way when the load of the second one fails.
TEST_CASE("what failed to load is computed again, whatever an earlier step had loaded",
          "[scheduler]") {
  KvCacheManager kv(kv_config(20));
  ScriptedConnector connector;
  SchedulerOptions own = options();
  own.async = own.recompute_failed_loads = true;
  own.pipeline_depth = 2;
  Scheduler scheduler(own, kv, &connector);
  const RequestId id{1};
  connector.scripts[id] = {.num_external = 8, .num_loads = 2};
  const BatchPlan& empty = scheduler.schedule();
  REQUIRE(scheduler.add(request(id.value, 20)).has_value());
  const BatchPlan& first = scheduler.schedule();
  REQUIRE(first.rows.at(0).num_computed == 8);
  const BlockId lost = kv.table(*scheduler.find(id), 0)[0];
  scheduler.commit(empty, {}, {.invalid_blocks = {&lost, 1}});
  connector.scripts[id].num_external = 16;
  const BatchPlan& second = scheduler.schedule();
  REQUIRE(second.rows.at(0).num_computed == 16);
  const BlockId lost_too = kv.table(*scheduler.find(id), 0)[2];
  const std::vector<TokenId> sampled{-1}, drawn{5};
  scheduler.commit(first, {.sampled = sampled}, {.invalid_blocks = {&lost_too, 1}});
  CHECK(scheduler.find(id)->num_computed == 8);
  const BatchPlan& third = scheduler.schedule();
  CHECK(third.rows.at(0).num_computed == 8);
  CHECK(scheduler.commit(second, {.sampled = drawn}).requests.empty());
  CHECK(scheduler.commit(third, {.sampled = drawn}).requests.size() == 1);
}

TEST_CASE("a load that fails is no hit, and its prompt is counted once", "[scheduler]") {
  KvCacheManager kv(kv_config(20));
  ScriptedConnector connector;
  SchedulerOptions own = options();
  own.recompute_failed_loads = true;
  Scheduler scheduler(own, kv, &connector);
  const RequestId id{1};
  connector.scripts[id] = {.num_external = 16, .async = true};
  REQUIRE(scheduler.add(request(id.value, 20)).has_value());
  step(scheduler);
  REQUIRE(scheduler.find(id)->state == RequestState::waiting_for_remote_kv);
  CHECK(scheduler.stats().external_cache_queries == 20);
  CHECK(scheduler.stats().external_cache_hits == 0);
  int expected = 16;
  TransferNews news{.received = std::span(&id, 1)};
  BlockId lost = 0;
  SECTION("all of it comes") {}
  SECTION("nothing of it comes") {
    lost = kv.table(*scheduler.find(id), 0)[0];
    expected = 0;
  }
  SECTION("its first half comes") {
    lost = kv.table(*scheduler.find(id), 0)[2];
    expected = 8;
  }
  if (lost != 0) news.invalid_blocks = {&lost, 1};
  step(scheduler, news);
  while (scheduler.has_work()) step(scheduler);
  CHECK(scheduler.stats().external_cache_hits == expected);
  CHECK(scheduler.stats().external_cache_queries == 20);
  CHECK(scheduler.stats().prefix_cache_queries == 20);
}

TEST_CASE("a prompt that is not looked up is no query", "[scheduler]") {
  KvCacheManager kv(kv_config(8));
  Scheduler scheduler(options(), kv);
  RequestInit scored = request(1, 16, 2);
  scored.sampling.prompt_logprobs = 1;
  REQUIRE(scheduler.add(std::move(scored)).has_value());
  while (scheduler.has_work()) step(scheduler);
  CHECK(scheduler.stats().prefix_cache_queries == 0);
}

TEST_CASE("Statistics count a prompt once, however often it was looked up", "[scheduler]") {
  KvCacheManager kv(kv_config(8));  // 7 usable blocks: the second must wait
  Scheduler scheduler(options(), kv);
  REQUIRE(scheduler.add(request(1, 16, 8)).has_value());
  step(scheduler);
  RequestInit again = request(2, 16, 8);
  again.prompt = request(1, 16).prompt;
  again.prompt.back() = 7;
  for (int i = 0; i < 4; ++i) again.prompt.push_back(8);
  REQUIRE(scheduler.add(std::move(again)).has_value());
  for (int i = 0; i < 5; ++i) step(scheduler);
  while (scheduler.has_work()) step(scheduler);
  const EngineStats stats = scheduler.stats();
  CHECK(stats.prefix_cache_queries == 16 + 20);
  CHECK(stats.prefix_cache_hits == 12);
  CHECK(stats.prompt_tokens == 16 + 20);
  CHECK(stats.generation_tokens == 16);
  CHECK(stats.num_free_blocks == 7);
}

TEST_CASE("A prompt whose steps are chunks goes on beside those who decode", "[scheduler]") {
  KvCacheConfig config = kv_config(200);
  config.max_model_len = 128;
  config.state_chunk = 4;
  config.enable_caching = false;
  config.groups.push_back(config.groups[0]);
  config.groups[1].spec.kind = KvKind::mamba;
  config.groups[1].spec.block_size = 128;
  config.groups[1].spec.state_cache_mode = StateCacheMode::none;
  KvCacheManager kv(config);
  SchedulerOptions own = options();
  own.max_model_len = 128;
  own.max_num_seqs = 4;
  own.max_num_batched_tokens = 6;
  own.target_step_seconds = GENERATE(0.0, 1.0);  // which bounds what prompts have of a step, too
  Scheduler scheduler(own, kv);
  const auto computed = [&](std::uint64_t id) {
    return scheduler.find(RequestId(id))->num_computed;
  };
  for (std::uint64_t id = 1; id <= 3; ++id) {
    REQUIRE(scheduler.add(request(id, 1, 100)).has_value());
    step(scheduler);
  }
  REQUIRE(scheduler.add(request(4, 60)).has_value());
  for (int round = 0; round < 8; ++round) {
    const std::array before{computed(1), computed(2), computed(3)};
    for (int i = 0; i < 2; ++i) step(scheduler);
    for (std::uint64_t id = 1; id <= 3; ++id) CHECK(computed(id) > before[id - 1]);
  }
  CHECK(computed(4) >= 7 * 4);
}

TEST_CASE("Options that would leave everyone waiting are refused", "[scheduler]") {
  KvCacheConfig own = kv_config(20);
  GroupConfig state;
  state.spec.kind = KvKind::mamba;
  state.spec.block_size = 4;
  state.spec.state_cache_mode = StateCacheMode::align;
  own.groups.push_back(state);
  KvCacheManager kv(own);
  SchedulerOptions small = options();
  small.max_num_batched_tokens = 3;  // no step could reach a state's boundary
  CHECK_THROWS_AS(Scheduler(small, kv), Failure);
  SchedulerOptions deep = options();
  deep.pipeline_depth = 3;
  CHECK_THROWS_AS(Scheduler(deep, kv), Failure);
}

}  // namespace quire
