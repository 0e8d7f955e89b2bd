#include <catch2/catch.hpp>

#include "tests/engine/client/fake_group.h"

namespace quire::test {
namespace {

using namespace std::chrono_literals;

FakeEngineOptions rank(std::uint32_t id) {
  FakeEngineOptions options;
  options.ready.engine = EngineId{id};
  return options;
}

TEST_CASE("requests go to the engine with the fewest live ones", "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeGroup fake(pool, {rank(0), rank(1), rank(2)});
    co_await start(fake);
    for (auto& engine : fake.engines) engine->hold();
    std::vector<Generation> generations;
    for (int i = 0; i < 9; ++i) {
      auto generation = fake.group->submit(request_of({i}, 5));
      REQUIRE(generation.has_value());
      generations.push_back(std::move(*generation));
    }
    int per_engine[3] = {};
    for (const Generation& generation : generations) ++per_engine[generation.engine().value];
    CHECK(per_engine[0] == 3);
    CHECK(per_engine[1] == 3);
    CHECK(per_engine[2] == 3);
    for (auto& engine : fake.engines) engine->release();
    for (auto& generation : generations) {
      const RequestOutput all = co_await read_to_end(generation);
      CHECK(all.token_ids.size() == 5);
    }
  });
}

TEST_CASE("a full queue is refused at once", "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    EngineConfig config;
    config.scheduler.max_num_seqs = 2;
    config.scheduler.max_num_queued_reqs = 3;
    FakeGroup fake(pool, {rank(0)}, {}, config);
    co_await start(fake);
    fake.engines[0]->hold();
    std::vector<Generation> generations;
    for (int i = 0; i < 5; ++i) {
      auto generation = fake.group->submit(request_of({1}, 5));
      REQUIRE(generation.has_value());
      generations.push_back(std::move(*generation));
    }
    const auto refused = fake.group->submit(request_of({1}, 5));
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == ErrorCode::overloaded);
    fake.engines[0]->release();
  });
}

TEST_CASE("prompts and parameters that cannot run are refused", "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeEngineOptions options;
    options.ready.max_model_len = 8;
    options.ready.vocab_size = 100;
    FakeGroup fake(pool, {options});
    co_await start(fake);
    auto hot = request_of({1}, 5);
    hot.sampling.temperature = -1;
    for (AddRequest bad : {request_of({}, 5), request_of(std::vector<TokenId>(8, 1), 5),
                           request_of({100}, 5), request_of({-1}, 5), hot}) {
      const auto refused = fake.group->submit(bad);
      REQUIRE_FALSE(refused.has_value());
      CHECK(refused.error().code == ErrorCode::invalid_argument);
      CHECK_FALSE(refused.error().detail.empty());
    }
    CHECK(fake.group->submit(request_of(std::vector<TokenId>(7, 1), 5)).has_value());
  });
}

TEST_CASE("draining refuses new requests and lets the running ones end", "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeEngineOptions options;
    options.step_time = 1ms;
    FakeGroup fake(pool, {options});
    co_await start(fake);
    auto generation = fake.group->submit(request_of({1}, 30));
    REQUIRE(generation.has_value());
    co_await fake.group->drain(Clock::now() + 10s);
    CHECK(fake.group->state() == EngineGroupState::draining);
    const auto refused = fake.group->submit(request_of({1}, 5));
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == ErrorCode::unavailable);
    const RequestOutput all = co_await read_to_end(*generation);
    CHECK(all.token_ids.size() == 30);
    CHECK(all.finish_reason == FinishReason::length);
  });
}

TEST_CASE("at the drain's deadline what is left is aborted", "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeEngineOptions options;
    options.step_time = 1ms;
    FakeGroup fake(pool, {options});
    co_await start(fake);
    auto generation = fake.group->submit(request_of({1}, 1'000'000));
    REQUIRE(generation.has_value());
    co_await fake.group->drain(Clock::now() + 20ms);
    const RequestOutput all = co_await read_to_end(*generation);
    CHECK(all.finish_reason == FinishReason::abort);
    co_await eventually([&] { return fake.engines[0]->num_live() == 0; });
  });
}

TEST_CASE("a dead engine ends its requests, and the group when it was the last", "[engine][client]") {
  const bool with_a_word = GENERATE(true, false);
  run(2, [with_a_word](asio::any_io_executor pool) -> awaitable<void> {
    FakeEngineOptions options;
    (with_a_word ? options.dies_after_steps : options.vanishes_after_steps) = 3;
    FakeGroup fake(pool, {options, rank(1)});
    co_await start(fake);
    fake.engines[0]->hold();
    auto first = fake.group->submit(request_of({1}, 100));
    auto second = fake.group->submit(request_of({1}, 100));
    REQUIRE(first.has_value());
    REQUIRE(second.has_value());
    fake.engines[0]->release();
    const RequestOutput all = co_await read_to_end(*first);
    CHECK(all.token_ids.size() == 3);
    CHECK(all.finish_reason == FinishReason::error);
    REQUIRE(all.error);
    CHECK(all.error->code == ErrorCode::unavailable);
    const RequestOutput of_second = co_await read_to_end(*second);
    CHECK(of_second.finish_reason == FinishReason::length);
    CHECK(fake.group->has_dead());
    CHECK(fake.group->error().find("engine 0") != std::string::npos);
    CHECK(fake.group->state() == EngineGroupState::ready);
    for (int i = 0; i < 3; ++i) {
      auto served = fake.group->submit(request_of({1}, 5));
      REQUIRE(served.has_value());
      CHECK(served->engine() == EngineId{1});
      const RequestOutput more = co_await read_to_end(*served);
      CHECK(more.finish_reason == FinishReason::length);
    }
    const auto gone = fake.group->submit(request_of({1}, 5), EngineId{0});
    REQUIRE_FALSE(gone.has_value());
    CHECK(gone.error().code == ErrorCode::unavailable);
    CHECK(gone.error().detail.find("engine 0 has") != std::string::npos);
  });
}

TEST_CASE("statistics of every step reach the observer in order", "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    std::int64_t last_step = 0;
    std::atomic<bool> in_order = true;
    std::atomic<int> tokens = 0;
    FakeGroup fake(pool, {rank(0)});
    fake.group->on_step([&](EngineId, const EngineStats& stats) {
      if (stats.steps < last_step) in_order = false;
      last_step = stats.steps;
      tokens += stats.step_tokens;
    });
    co_await start(fake);
    auto generation = fake.group->submit(request_of({1}, 64));
    REQUIRE(generation.has_value());
    co_await read_to_end(*generation);
    co_await eventually([&] { return tokens == 64; });
    CHECK(in_order);
    CHECK(fake.group->stats(EngineId{0}).num_running == 0);
    CHECK(fake.group->stats(EngineId{0}).generation_tokens == 64);
  });
}

}  // namespace
}  // namespace quire::test
