// Engines elsewhere: what a lost one had goes to another, and it is taken back when it returns.

#include <catch2/catch.hpp>

#include "tests/engine/client/fake_group.h"

namespace quire::test {
namespace {

FakeEngineOptions engine(std::uint32_t rank) {
  FakeEngineOptions options;
  options.ready.engine = EngineId{rank};
  options.step_time = std::chrono::milliseconds(1);
  return options;
}

TEST_CASE("a request that nobody has read goes to another engine", "[engine][client][retry]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeEngineOptions dying = engine(0);
    dying.dies_after_steps = 3;
    FakeGroup fake(pool, {dying, engine(1)}, {}, {}, true);
    co_await start(fake);
    fake.engines[0]->hold();
    auto first = fake.group->submit(request_of({1, 2}, 20));
    auto second = fake.group->submit(request_of({3}, 20));
    REQUIRE(first.has_value());
    REQUIRE(second.has_value());
    REQUIRE(first->engine() == EngineId{0});
    fake.engines[0]->release();
    co_await eventually([&] { return fake.engines[1]->num_added() == 2; });
    const RequestOutput all = co_await read_to_end(*first);
    CHECK(all.finish_reason == FinishReason::length);
    REQUIRE(all.token_ids.size() == 20);
    for (int i = 0; i < 20; ++i)
      CHECK(all.token_ids[static_cast<std::size_t>(i)] ==
            lcg_token(request_of({1, 2}, 20), i, 1536));
    CHECK(first->engine() == EngineId{1});
  });
}

TEST_CASE("a reader who can forget gets the whole answer from another engine",
          "[engine][client][retry]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeEngineOptions dying = engine(0);
    dying.dies_after_steps = 50;
    FakeGroup fake(pool, {dying, engine(1)}, {}, {}, true);
    co_await start(fake);
    auto generation = fake.group->submit(request_of({1}, 200));
    REQUIRE(generation.has_value());
    generation->let_start_over();
    std::vector<TokenId> ids;
    int times_begun = 0;
    std::optional<FinishReason> reason;
    while (const auto output = co_await generation->next()) {
      if (generation->starts_over()) ids.clear();
      times_begun += generation->starts_over();
      ids.insert(ids.end(), output->token_ids.begin(), output->token_ids.end());
      reason = output->finish_reason;
    }
    CHECK(reason == FinishReason::length);
    CHECK(times_begun == 1);
    REQUIRE(ids.size() == 200);
    for (int i = 0; i < 200; ++i)
      CHECK(ids[static_cast<std::size_t>(i)] == lcg_token(request_of({1}, 200), i, 1536));
  });
}

TEST_CASE("a request that somebody has read ends with its engine", "[engine][client][retry]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeEngineOptions dying = engine(0);
    dying.dies_after_steps = 50;
    FakeGroup fake(pool, {dying, engine(1)}, {}, {}, true);
    co_await start(fake);
    auto generation = fake.group->submit(request_of({1}, 200));
    REQUIRE(generation.has_value());
    const auto begun = co_await generation->next();
    REQUIRE(begun.has_value());
    const RequestOutput rest = co_await read_to_end(*generation);
    CHECK(rest.finish_reason == FinishReason::error);
    CHECK(fake.engines[1]->num_added() == 0);
  });
}

}  // namespace
}  // namespace quire::test
