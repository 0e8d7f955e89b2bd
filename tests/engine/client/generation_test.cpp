#include <catch2/catch.hpp>

#include "tests/engine/client/fake_group.h"

namespace quire::test {

awaitable<void> eventually(std::function<bool()> condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) co_await sleep_for(std::chrono::milliseconds(1));
  REQUIRE(condition());
}

awaitable<void> start(FakeGroup& fake) {
  const auto started = co_await fake.group->start();
  REQUIRE(started.has_value());
}

awaitable<RequestOutput> read_to_end(Generation& generation) {
  auto all = co_await generation.next();
  REQUIRE(all);
  while (auto output = co_await generation.next()) merge(*all, std::move(*output));
  co_return *all;
}

namespace {

TEST_CASE("a generation gives every token once, then its end", "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeGroup fake(pool, {{}});
    co_await start(fake);
    const AddRequest request = request_of({1, 2, 3}, 300);
    auto generation = fake.group->submit(request);
    REQUIRE(generation.has_value());
    const RequestOutput all = co_await read_to_end(*generation);
    REQUIRE(all.token_ids.size() == 300);
    for (int i = 0; i < 300; ++i) REQUIRE(all.token_ids[i] == lcg_token(request, i, 1536));
    CHECK(all.finish_reason == FinishReason::length);
    CHECK(all.times.queued <= all.times.scheduled);
    CHECK(all.times.scheduled <= all.times.first_token);
    CHECK(all.times.first_token <= all.times.last_token);
    const auto after = co_await generation->next();
    CHECK_FALSE(after);
    CHECK(fake.group->num_live() == 0);
  });
}

TEST_CASE("what arrives while nobody reads comes as one output", "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeGroup fake(pool, {{}});
    co_await start(fake);
    auto generation = fake.group->submit(request_of({1}, 200));
    REQUIRE(generation.has_value());
    co_await eventually([&] { return fake.group->num_live() == 0; });
    const auto output = co_await generation->next();
    REQUIRE(output);
    CHECK(output->token_ids.size() == 200);
    CHECK(output->finish_reason == FinishReason::length);
    const auto after = co_await generation->next();
    CHECK_FALSE(after);
  });
}

TEST_CASE("a slow reader holds up neither the engine nor another reader", "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeGroup fake(pool, {{}});
    co_await start(fake);
    auto slow = fake.group->submit(request_of({1}, 1000));
    auto fast = fake.group->submit(request_of({2}, 1000));
    REQUIRE(slow.has_value());
    REQUIRE(fast.has_value());
    const RequestOutput of_fast = co_await read_to_end(*fast);
    CHECK(of_fast.token_ids.size() == 1000);
    const RequestOutput of_slow = co_await read_to_end(*slow);
    CHECK(of_slow.token_ids.size() == 1000);
  });
}

TEST_CASE("destroying a generation aborts it in the engine", "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeEngineOptions options;
    options.step_time = std::chrono::milliseconds(1);
    FakeGroup fake(pool, {options});
    co_await start(fake);
    {
      auto generation = fake.group->submit(request_of({1}, 1'000'000));
      REQUIRE(generation.has_value());
      const auto first = co_await generation->next();
      REQUIRE(first);
    }
    co_await eventually([&] { return fake.engines[0]->num_aborted() == 1; });
    CHECK(fake.engines[0]->num_live() == 0);
    CHECK(fake.group->num_live() == 0);
  });
}

awaitable<void> read_one(Generation& generation, bool& got) {
  got = (co_await generation.next()).has_value();
}

TEST_CASE("a cancelled wait loses nothing", "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeGroup fake(pool, {{}});
    co_await start(fake);
    fake.engines[0]->hold();
    auto generation = fake.group->submit(request_of({1}, 50));
    REQUIRE(generation.has_value());
    bool got = false;
    const bool in_time =
        co_await with_timeout(std::chrono::milliseconds(20), read_one(*generation, got));
    CHECK_FALSE(in_time);
    CHECK_FALSE(got);
    fake.engines[0]->release();
    const RequestOutput all = co_await read_to_end(*generation);
    CHECK(all.token_ids.size() == 50);
  });
}

TEST_CASE("cancel wakes a reader, which sees the end", "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeGroup fake(pool, {{}});
    co_await start(fake);
    fake.engines[0]->hold();
    auto generation = fake.group->submit(request_of({1}, 50));
    REQUIRE(generation.has_value());
    generation->cancel();
    const auto after = co_await generation->next();
    CHECK_FALSE(after);
    fake.engines[0]->release();
    co_await eventually([&] { return fake.engines[0]->num_live() == 0; });
  });
}

TEST_CASE("an engine that rejects a request ends that one only", "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeEngineOptions options;
    options.rejects = [](const AddRequest& request) { return request.prompt[0] == 13; };
    FakeGroup fake(pool, {options});
    co_await start(fake);
    auto bad = fake.group->submit(request_of({13}, 5));
    auto good = fake.group->submit(request_of({14}, 5));
    REQUIRE(bad.has_value());
    REQUIRE(good.has_value());
    const auto end = co_await bad->next();
    REQUIRE(end);
    CHECK(end->finish_reason == FinishReason::error);
    REQUIRE(end->error);
    CHECK(end->error->code == ErrorCode::internal);
    const RequestOutput of_good = co_await read_to_end(*good);
    CHECK(of_good.token_ids.size() == 5);
  });
}

}  // namespace
}  // namespace quire::test
