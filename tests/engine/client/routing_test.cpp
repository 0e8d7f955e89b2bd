// Which of several engines gets a request: the one that is asked for, the one that had its
// beginning, or the one with the least to do.

#include <catch2/catch.hpp>
#include <numeric>

#include "engine/client/prefix_memory.h"
#include "engine/wire/in_process_channel.h"
#include "tests/engine/client/fake_group.h"

namespace quire::test {
namespace {

FakeEngineOptions slow(std::uint32_t rank) {
  FakeEngineOptions options;
  options.ready.engine = EngineId{rank};
  options.step_time = std::chrono::milliseconds(1);
  return options;
}

std::vector<TokenId> text_of(TokenId first, std::size_t length) {
  std::vector<TokenId> tokens(length);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Where it went, when it has ended.
awaitable<std::uint32_t> engine_of(EngineGroup& group, std::vector<TokenId> prompt) {
  auto generation = group.submit(request_of(std::move(prompt), 1));
  REQUIRE(generation.has_value());
  const std::uint32_t engine = generation->engine().value;
  co_await read_to_end(*generation);
  co_return engine;
}

TEST_CASE("the longest beginning is remembered by who had it last", "[engine][client][routing]") {
  PrefixMemory memory;
  const auto text = text_of(1, 100);
  CHECK_FALSE(memory.find(text, "", 16));
  memory.remember(std::span(text).first(40), "", 16, {EngineId{0}, 1});
  memory.remember(text, "", 16, {EngineId{1}, 3});
  memory.remember(std::span(text).first(40), "", 16, {EngineId{0}, 1});
  auto match = memory.find(text, "", 16);
  REQUIRE(match);
  CHECK(match->holder == PrefixMemory::Holder{EngineId{1}, 3});
  CHECK(match->tokens == 96);
  match = memory.find(std::span(text).first(47), "", 16);
  REQUIRE(match);
  CHECK(match->holder == PrefixMemory::Holder{EngineId{0}, 1});
  CHECK(match->tokens == 32);
  CHECK_FALSE(memory.find(text, "salt", 16));
  CHECK_FALSE(memory.find(std::span(text).subspan(1), "", 16));
  CHECK_FALSE(memory.find(std::span(text).first(15), "", 16));
  memory.forget();
  CHECK_FALSE(memory.find(text, "", 16));
}

TEST_CASE("memory of prefixes has an end, and stays right beyond it", "[engine][client][routing]") {
  PrefixMemory memory;
  for (TokenId first = 0; first < 20'000; ++first) {
    memory.remember(text_of(first * 100, 128), "", 16, {EngineId{static_cast<std::uint32_t>(first) % 4}, 0});
  }
  int found = 0;
  for (TokenId first = 0; first < 20'000; ++first) {
    const auto match = memory.find(text_of(first * 100, 128), "", 16);
    if (!match) continue;
    ++found;
    CHECK(match->holder.engine.value == static_cast<std::uint32_t>(first) % 4);
  }
  CHECK(found > 1'000);
  CHECK(found < 20'000);
}

TEST_CASE("a prompt goes where its beginning was, and others take turns", "[engine][client][routing]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeGroup fake(pool, {slow(0), slow(1)});
    co_await start(fake);
    const std::uint32_t home = co_await engine_of(*fake.group, text_of(1, 64));
    for (int i = 0; i < 5; ++i) CHECK(co_await engine_of(*fake.group, text_of(1, 64 + 7 * i)) == home);
    // A small part of a prompt is no reason.
    int away = 0;
    for (TokenId i = 0; i < 6; ++i) {
      auto other = text_of(1, 32);
      const auto rest = text_of(100 * (i + 1), 200);
      other.insert(other.end(), rest.begin(), rest.end());
      away += co_await engine_of(*fake.group, other) != home;
    }
    CHECK(away > 0);
    CHECK(away < 6);
  });
}

TEST_CASE("no prefix keeps an engine idle while another is crowded", "[engine][client][routing]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeGroup fake(pool, {slow(0), slow(1)});
    co_await start(fake);
    fake.engines[0]->hold();
    fake.engines[1]->hold();
    std::vector<Generation> running;
    int count[2] = {0, 0};
    for (int i = 0; i < 40; ++i) {
      auto one = fake.group->submit(request_of(text_of(1, 64), 5));
      REQUIRE(one.has_value());
      ++count[one->engine().value];
      running.push_back(std::move(*one));
    }
    CHECK(std::abs(count[0] - count[1]) <= 8);
    fake.engines[0]->release();
    fake.engines[1]->release();
    for (Generation& one : running) co_await read_to_end(one);
  });
}

TEST_CASE("a short beginning is worth no waiting, a long one a little", "[engine][client][routing]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeGroup fake(pool, {slow(0), slow(1)});
    co_await start(fake);
    for (const auto& [length, most] : {std::pair<std::size_t, int>{64, 1}, {600, 3}}) {
      const std::uint32_t home = co_await engine_of(*fake.group, text_of(1, length));
      fake.engines[0]->hold();
      fake.engines[1]->hold();
      std::vector<Generation> running;
      int at_home = 0;
      while (true) {
        auto one = fake.group->submit(request_of(text_of(1, length), 1));
        REQUIRE(one.has_value());
        const bool is_home = one->engine().value == home;
        running.push_back(std::move(*one));
        if (!is_home) break;
        ++at_home;
      }
      CHECK(at_home == most);
      fake.engines[0]->release();
      fake.engines[1]->release();
      for (Generation& one : running) co_await read_to_end(one);
    }
  });
}

TEST_CASE("who names an engine gets it, and no other", "[engine][client][routing]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    FakeGroup fake(pool, {slow(0), slow(1)});
    co_await start(fake);
    for (const std::uint32_t rank : {1u, 1u, 0u, 1u, 1u}) {
      auto one = fake.group->submit(request_of(text_of(1, 64), 5), EngineId{rank});
      REQUIRE(one.has_value());
      CHECK(one->engine() == EngineId{rank});
      co_await read_to_end(*one);
    }
    CHECK(fake.engines[1]->num_added() == 4);
  });
}

TEST_CASE("what an engine had cached is forgotten when it begins again", "[engine][client][routing]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    std::vector<std::unique_ptr<ClientEnd>> clients;
    std::vector<std::unique_ptr<EngineEnd>> engines;
    for (int i = 0; i < 2; ++i) {
      ChannelEnds ends = make_in_process_channel();
      clients.push_back(std::move(ends.client));
      engines.push_back(std::move(ends.engine));
    }
    EngineGroup group(pool, std::move(clients), EngineConfig());
    const auto begin = [&](std::size_t rank) {
      engines[rank]->publish(Hello{EngineId{0}, "played"});
      engines[rank]->publish(default_ready());
    };
    begin(0);
    begin(1);
    REQUIRE((co_await group.start()).has_value());
    const auto place = [&]() -> std::uint32_t {
      auto one = group.submit(request_of(text_of(1, 64), 1));
      REQUIRE(one.has_value());
      return one->engine().value;  // aborted here: engines stay idle
    };
    const std::uint32_t home = place();
    for (int i = 0; i < 4; ++i) CHECK(place() == home);
    begin(home);
    co_await eventually([&] { return place() != home; });
    const std::uint32_t moved = 1 - home;
    for (int i = 0; i < 4; ++i) CHECK(place() == moved);
    engines.clear();
  });
}

}  // namespace
}  // namespace quire::test
