#include <catch2/catch.hpp>

#include "tests/engine/client/fake_group.h"

namespace quire::test {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

FakeEngineOptions engine(std::uint32_t rank, int max_model_len, int blocks) {
  FakeEngineOptions options;
  options.ready.engine = EngineId{rank};
  options.ready.max_model_len = max_model_len;
  options.ready.num_gpu_blocks = blocks;
  return options;
}

TEST_CASE("several engines: smallest context, blocks per engine", "[engine][client][handshake]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    std::vector<FakeEngineOptions> options{engine(0, 8192, 100), engine(1, 4096, 90)};
    options[1].startup_time = 30ms;
    FakeGroup fake(pool, options);
    CHECK(fake.group->state() == EngineGroupState::starting);
    const auto early = fake.group->submit(request_of({1}, 5));
    REQUIRE_FALSE(early.has_value());
    CHECK(early.error().code == ErrorCode::overloaded);
    co_await start(fake);
    CHECK(fake.group->state() == EngineGroupState::ready);
    const ReadyInfo& ready = fake.group->ready();
    CHECK(ready.max_model_len == 4096);
    CHECK(ready.block_size == 16);
    REQUIRE(ready.engines.size() == 2);
    CHECK(ready.engines[0].num_gpu_blocks == 100);
    CHECK(ready.engines[1].num_gpu_blocks == 90);
    CHECK(ready.total_gpu_blocks() == 190);
    CHECK(ready.engines[0].groups.size() == 1);
  });
}

void expect_start_error(std::vector<FakeEngineOptions> options, const char* text,
                        EngineGroupOptions group_options = {}) {
  run(2, [&](asio::any_io_executor pool) -> awaitable<void> {
    FakeGroup fake(pool, options, group_options);
    const auto started = co_await fake.group->start();
    REQUIRE_FALSE(started.has_value());
    CHECK_THAT(started.error().detail, Contains(text));
    CHECK(fake.group->state() == EngineGroupState::dead);
    CHECK_FALSE(fake.group->submit(request_of({1}, 5)).has_value());
  });
}

TEST_CASE("engines that disagree fail start-up by name", "[engine][client][handshake]") {
  std::vector<FakeEngineOptions> options{engine(0, 4096, 90), engine(1, 4096, 90)};
  SECTION("block size") {
    options[1].ready.block_size = 32;
    expect_start_error(options, "block_size: engine 0 has 16, engine 1 has 32");
  }
  SECTION("model") {
    options[1].ready.model_fingerprint = "another";
    expect_start_error(options, "model_fingerprint: engine 0 has fake, engine 1 has another");
  }
  SECTION("statistics address") {
    options[0].ready.dp_stats_address = "tcp://a:1";
    options[1].ready.dp_stats_address = "tcp://b:1";
    expect_start_error(options, "dp_stats_address");
  }
  SECTION("nonsense") {
    options[1].ready.num_gpu_blocks = 0;
    expect_start_error(options, "engine 1 reports num_gpu_blocks 0");
  }
}

TEST_CASE("one statistics address is everyone's", "[engine][client][handshake]") {
  Ready first;
  first.max_model_len = first.block_size = first.num_gpu_blocks = 16;
  Ready second = first;
  second.dp_stats_address = "tcp://a:1";
  const auto merged = merge_ready({first, second});
  REQUIRE(merged.has_value());
  CHECK(merged->dp_stats_address == "tcp://a:1");
}

TEST_CASE("a dying engine fails start-up with its own words", "[engine][client][handshake]") {
  std::vector<FakeEngineOptions> options{engine(0, 4096, 90), engine(1, 4096, 90)};
  options[0].startup_time = 10s;  // start() does not wait for this one
  options[0].silent_at_startup = true;
  options[1].dies_at_startup = "model.safetensors: header says 3 GB, file has 1 GB";
  expect_start_error(options, "engine 1 could not start: model.safetensors: header says 3 GB");
}

TEST_CASE("a silent engine fails start-up at the timeout", "[engine][client][handshake]") {
  std::vector<FakeEngineOptions> options{engine(0, 4096, 90), engine(1, 4096, 90)};
  options[1].silent_at_startup = true;
  expect_start_error(options, "engine 1 was silent for 50 ms (EngineGroupOptions::ready_timeout)",
                     {.ready_timeout = 50ms});
}

}  // namespace
}  // namespace quire::test
