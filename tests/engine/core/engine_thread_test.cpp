#include "engine/core/engine_thread.h"

#include <catch2/catch.hpp>
#include <ctime>

#include "engine/wire/in_process_channel.h"
#include "tests/engine/core/live_engine.h"
#include "tests/support/pretend_device.h"

namespace quire::test {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

AddRequest endless(int max_tokens) {
  AddRequest request = greedy_request({1, 2, 3, 4, 5}, max_tokens);
  request.sampling.ignore_eos = true;
  return request;
}

awaitable<std::string> start_error(asio::any_io_executor pool, EngineConfig config,
                                   BackendFactory backend) {
  LiveEngine engine(pool, config, std::move(backend));
  const auto started = co_await engine.group().start();
  co_return started.has_error() ? started.error().detail : "started";
}

TEST_CASE("an engine that cannot start says why, and the server can tell", "[engine][core]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    EngineConfig config = tiny_config();
    config.model.path = "no/such/model";
    const std::string no_model = co_await start_error(pool, config, cpu_backend);
    CHECK_THAT(no_model, Contains("engine 0 could not start") && Contains("no/such/model"));

    config = tiny_config();
    config.cache.num_gpu_blocks_override = 3;
    const std::string no_room = co_await start_error(pool, config, cpu_backend);
    CHECK_THAT(no_room, Contains("engine 0 could not start") && Contains("1024"));

    const std::string no_device =
        co_await start_error(pool, tiny_config(), [](const EngineConfig&) -> EngineBackend {
          throw Failure(ErrorCode::unavailable, "there is no such device here");
        });
    CHECK_THAT(no_device, Contains("there is no such device here"));
  });
}

TEST_CASE("an exception in a step ends the engine, not the process", "[engine][core]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    auto copies_left = std::make_shared<std::atomic<int>>(-1);
    LiveEngine engine(pool, tiny_config(), [copies_left](const EngineConfig& config) {
      EngineBackend backend = cpu_backend(config);
      backend.device = std::make_unique<PretendDevice>(std::move(backend.device), copies_left);
      return backend;
    });
    co_await engine.start();
    auto generation = engine.group().submit(endless(900));
    REQUIRE(generation.has_value());
    const auto first = co_await generation->next();
    REQUIRE(first);
    *copies_left = 50;
    const RequestOutput all = co_await read_to_end(*generation);
    CHECK(all.finish_reason == FinishReason::error);
    REQUIRE(all.error);
    CHECK(all.error->code == ErrorCode::unavailable);
    CHECK_THAT(all.error->detail, Contains("the device is lost"));
    CHECK(engine.group().state() == EngineGroupState::dead);
    CHECK_FALSE(engine.group().submit(endless(5)).has_value());
  });
}

TEST_CASE("a reader that leaves frees its blocks", "[engine][core]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    LiveEngine engine(pool, tiny_config());
    co_await engine.start();
    {
      auto generation = engine.group().submit(endless(1000));
      REQUIRE(generation.has_value());
      const auto first = co_await generation->next();
      REQUIRE(first);
    }
    co_await eventually([&] {
      const EngineStats stats = engine.group().stats(EngineId{0});
      return stats.num_running == 0 && stats.num_free_blocks == stats.num_blocks;
    });
  });
}

TEST_CASE("an idle engine sleeps", "[engine][core]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    LiveEngine engine(pool, tiny_config());
    co_await engine.start();
    auto generation = engine.group().submit(endless(10));
    REQUIRE(generation.has_value());
    co_await read_to_end(*generation);
    co_await sleep_for(20ms);
    const std::clock_t before = std::clock();
    co_await sleep_for(400ms);
    const double busy = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
    CHECK(busy < 0.02);
  });
}

TEST_CASE("closing the line stops an engine in the middle of its work", "[engine][core]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    auto engine = std::make_unique<LiveEngine>(pool, tiny_config());
    co_await engine->start();
    auto generation = engine->group().submit(endless(1000));
    REQUIRE(generation.has_value());
    const auto first = co_await generation->next();
    REQUIRE(first);
    engine->stop_engine();
    const RequestOutput rest = co_await read_to_end(*generation);
    CHECK(rest.finish_reason == FinishReason::error);
    generation = Error{};
  });
}

TEST_CASE("two engines share the work and each reports its own pool", "[engine][core]") {
  // One thread: no answer is taken in, and so no load forgotten, before all are submitted.
  run(1, [](asio::any_io_executor pool) -> awaitable<void> {
    std::vector<std::unique_ptr<EngineThread>> threads;
    std::vector<std::unique_ptr<ClientEnd>> clients;
    for (std::uint32_t rank : {0u, 1u}) {
      ChannelEnds ends = make_in_process_channel();
      threads.push_back(
          std::make_unique<EngineThread>(EngineId{rank}, std::move(ends.engine), cpu_backend));
      clients.push_back(std::move(ends.client));
    }
    EngineGroup group(pool, std::move(clients), tiny_config());
    const auto started = co_await group.start();
    REQUIRE(started.has_value());
    CHECK(group.ready().total_gpu_blocks() == 2 * 1025);
    std::vector<Generation> generations;
    for (int i = 0; i < 6; ++i) {
      auto generation = group.submit(endless(30));
      REQUIRE(generation.has_value());
      generations.push_back(std::move(*generation));
    }
    std::vector<TokenId> answer;
    for (Generation& generation : generations) {
      const RequestOutput all = co_await read_to_end(generation);
      if (answer.empty()) answer = all.token_ids;
      CHECK(all.token_ids == answer);
    }
    for (std::uint32_t rank : {0u, 1u}) {
      CHECK(group.stats(EngineId{rank}).generation_tokens == 90);
    }
  });
}

}  // namespace
}  // namespace quire::test
