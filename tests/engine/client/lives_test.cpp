// Engines that take nothing new, and their lives; the test plays the engines.

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "engine/wire/in_process_channel.h"
#include "tests/engine/client/fake_group.h"

namespace quire::test {
namespace {

// A line whose engine takes nothing new, before an event says why; or while it is being told.
class LeavingEnd final : public ClientEnd {
 public:
  LeavingEnd(std::unique_ptr<ClientEnd> end, const std::atomic<bool>& leaves,
             const std::function<void()>& while_sent)
      : end_(std::move(end)), leaves_(leaves), while_sent_(while_sent) {}
  bool send(Command& command) override {
    if (!leaves_ || !std::holds_alternative<AddRequest>(command)) return end_->send(command);
    if (while_sent_) while_sent_();
    return false;
  }
  void on_events(std::function<void()> notify) override { end_->on_events(std::move(notify)); }
  bool take(std::vector<EngineEvent>& events) override { return end_->take(events); }
  void close() override { end_->close(); }

 private:
  std::unique_ptr<ClientEnd> end_;
  const std::atomic<bool>& leaves_;
  const std::function<void()>& while_sent_;
};

// As a socket's line tells it.
StartupProgress leaving() { return {"was asked to end, and finishes what runs", 0}; }

// Two engines elsewhere.
struct PlayedGroup {
  explicit PlayedGroup(asio::any_io_executor pool, EngineGroupOptions options = {}) {
    std::vector<std::unique_ptr<ClientEnd>> clients;
    for (auto& leaves : leave) {
      ChannelEnds ends = make_in_process_channel();
      clients.push_back(std::make_unique<LeavingEnd>(std::move(ends.client), leaves, while_sent));
      engines.push_back(std::move(ends.engine));
    }
    group = std::make_unique<EngineGroup>(pool, std::move(clients), EngineConfig(), options);
  }

  void begin(std::size_t rank) {
    engines[rank]->publish(Hello{EngineId{0}, "played"});
    engines[rank]->publish(default_ready());
  }
  awaitable<void> start() {
    begin(0);
    begin(1);
    const auto started = co_await group->start();
    REQUIRE(started.has_value());
  }
  void finish(std::size_t rank, RequestId id) {
    StepOutput step;
    RequestOutput& output = step.requests.emplace_back();
    output.id = id;
    output.token_ids = {7};
    output.finish_reason = FinishReason::length;
    engines[rank]->publish(std::move(step));
  }

  std::atomic<bool> leave[2] = {false, false};
  std::function<void()> while_sent;  // what an engine that takes nothing new does meanwhile
  std::vector<std::unique_ptr<EngineEnd>> engines;
  std::unique_ptr<EngineGroup> group;
};

TEST_CASE("an engine that takes nothing new is passed over and finishes its own",
          "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    PlayedGroup played(pool);
    co_await played.start();
    auto first = played.group->submit(request_of({1}, 1));
    REQUIRE(first.has_value());
    const std::size_t leaving = first->engine().value;
    played.leave[leaving] = true;
    for (int i = 0; i < 6; ++i) {
      auto other = played.group->submit(request_of({2}, 1));
      REQUIRE(other.has_value());
      CHECK(other->engine().value != leaving);
    }
    played.finish(leaving, first->id());
    const RequestOutput all = co_await read_to_end(*first);
    CHECK(all.finish_reason == FinishReason::length);
  });
}

TEST_CASE("an engine that leaves is not ready, and says so", "[engine][client][leaving]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    EngineGroupOptions options;
    options.orphan_patience = std::chrono::milliseconds(50);
    PlayedGroup played(pool, options);
    co_await played.start();
    auto running = played.group->submit(request_of({1}, 1), EngineId{0});
    REQUIRE(running.has_value());
    played.engines[0]->publish(leaving());
    co_await eventually([&] { return !played.group->is_up(EngineId{0}); });
    CHECK(played.group->state() == EngineGroupState::ready);
    const std::string reason = "engine 0 was asked to end, and finishes what runs";
    const auto named = played.group->submit(request_of({2}, 1), EngineId{0});
    REQUIRE(named.has_error());
    CHECK(named.error().detail.find(reason) != std::string::npos);
    for (int i = 0; i < 3; ++i)
      CHECK(played.group->submit(request_of({3}, 1))->engine() == EngineId{1});
    played.engines[1]->publish(leaving());
    co_await eventually([&] { return played.group->state() == EngineGroupState::starting; });
    CHECK(played.group->progress().find(reason) != std::string::npos);
    // One that comes now waits, though not for ever.
    auto late = played.group->submit(request_of({4}, 1));
    REQUIRE(late.has_value());
    const RequestOutput end = co_await read_to_end(*late);
    REQUIRE(end.error.has_value());
    CHECK(end.error->code == ErrorCode::unavailable);
    CHECK(end.error->detail.find(reason) != std::string::npos);
    played.finish(0, running->id());
    const RequestOutput all = co_await read_to_end(*running);
    CHECK(all.finish_reason == FinishReason::length);
  });
}

TEST_CASE("requests wait for an engine that was asked to end", "[engine][client][leaving]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    PlayedGroup played(pool);
    co_await played.start();
    std::vector<Generation> waiting;
    const auto submit = [&] {
      auto one = played.group->submit(request_of({1}, 1));
      REQUIRE(one.has_value());
      waiting.push_back(std::move(*one));
    };
    for (auto& engine : played.engines) engine->publish(leaving());
    co_await eventually([&] { return played.group->state() == EngineGroupState::starting; });
    submit();
    played.engines[1]->publish(EngineDead{{}, "the connection was closed"});
    co_await eventually(
        [&] { return played.group->progress().find("has ended") != std::string::npos; });
    submit();
    played.engines[1]->publish(Hello{EngineId{0}, "played"});
    submit();
    played.engines[1]->publish(default_ready());
    std::size_t handed = 0;
    co_await eventually([&] {
      std::vector<Command> commands;
      played.engines[1]->take(commands);
      for (const Command& command : commands) {
        const auto* add = std::get_if<AddRequest>(&command);
        if (add == nullptr) continue;
        ++handed;
        played.finish(1, add->id);
      }
      return handed == waiting.size();
    });
    for (Generation& one : waiting) {
      const RequestOutput all = co_await read_to_end(one);
      CHECK(all.finish_reason == FinishReason::length);
    }
  });
}

TEST_CASE("a request meets an engine that has left before the event says so",
          "[engine][client][leaving]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    PlayedGroup played(pool);
    co_await played.start();
    for (auto& leaves : played.leave) leaves = true;
    auto late = played.group->submit(request_of({1}, 1));
    REQUIRE(late.has_value());
    played.leave[1] = false;
    played.engines[1]->publish(EngineDead{{}, "the connection was closed"});
    played.begin(1);
    co_await eventually([&] { return late->engine() == EngineId{1}; });
    played.finish(1, late->id());
    const RequestOutput all = co_await read_to_end(*late);
    CHECK(all.finish_reason == FinishReason::length);
  });
}

TEST_CASE("a request whose engine is lost while it is sent is run once",
          "[engine][client][retry]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    PlayedGroup played(pool);
    co_await played.start();
    auto first = played.group->submit(request_of({1}, 1));
    REQUIRE(first.has_value());
    const std::size_t stays = first->engine().value, leaves = 1 - stays;
    played.leave[leaves] = true;
    played.while_sent = [&] {
      played.engines[leaves]->publish(EngineDead{{}, "the connection was closed"});
      while (played.group->is_up(EngineId{static_cast<std::uint32_t>(leaves)}))
        std::this_thread::yield();
    };
    auto second = played.group->submit(request_of({2}, 1));
    REQUIRE(second.has_value());
    co_await eventually([&] { return second->engine() == first->engine(); });
    std::vector<Command> commands;
    const auto num_added = [&] {
      played.engines[stays]->take(commands);
      return std::ranges::count_if(commands, [](const Command& command) {
        return std::holds_alternative<AddRequest>(command);
      });
    };
    co_await eventually([&] { return num_added() > 1; });
    CHECK(num_added() == 2);
    played.finish(stays, second->id());
    const RequestOutput all = co_await read_to_end(*second);
    CHECK(all.finish_reason == FinishReason::length);
  });
}

TEST_CASE("what a former life of an engine had does not stay in the metrics", "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    PlayedGroup played(pool);
    co_await played.start();
    StepOutput busy;
    busy.stats.num_running = 3;
    busy.stats.kv_cache_usage = 0.5;
    busy.stats.steps = 7;
    played.engines[0]->publish(busy);
    co_await eventually([&] { return played.group->stats(EngineId{0}).num_running == 3; });
    played.engines[0]->publish(EngineDead{{}, "it is gone"});
    co_await eventually([&] { return played.group->stats(EngineId{0}).num_running == 0; });
    CHECK(played.group->stats(EngineId{0}).kv_cache_usage == 0);
    played.begin(0);
    co_await eventually([&] { return played.group->progress().empty(); });
    CHECK(played.group->stats(EngineId{0}).steps == 0);
  });
}

// The requests that an engine has been handed since the last time.
std::vector<RequestId> added(EngineEnd& engine) {
  std::vector<Command> commands;
  std::vector<RequestId> ids;
  engine.take(commands);
  for (const Command& command : commands) {
    if (const auto* add = std::get_if<AddRequest>(&command)) ids.push_back(add->id);
  }
  return ids;
}

awaitable<void> lose_second(PlayedGroup& played) {
  played.engines[1]->publish(EngineDead{{}, "it is gone"});
  co_await eventually([&] { return !played.group->progress().empty(); });
}

// The second one first: nothing moves to it.
awaitable<void> lose_all(PlayedGroup& played) {
  co_await lose_second(played);
  played.engines[0]->publish(EngineDead{{}, "it is gone"});
  co_await eventually([&] { return played.group->state() == EngineGroupState::starting; });
}

TEST_CASE("with no engine left a request waits for one that comes back", "[engine][client][retry]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    PlayedGroup played(pool);
    co_await played.start();
    co_await lose_second(played);
    auto waiting = played.group->submit(request_of({1}, 1));
    auto left = played.group->submit(request_of({2}, 1));
    REQUIRE(waiting.has_value());
    REQUIRE(left.has_value());
    co_await lose_all(played);
    left->cancel();
    CHECK(played.group->num_live() == 1);
    CHECK(played.group->stats(EngineId{0}).num_waiting == 1);
    for (auto& engine : played.engines) added(*engine);
    played.begin(1);
    std::vector<RequestId> handed;
    co_await eventually([&] {
      for (const RequestId id : added(*played.engines[1])) handed.push_back(id);
      return !handed.empty();
    });
    CHECK(handed == std::vector{waiting->id()});
    played.finish(1, waiting->id());
    const RequestOutput all = co_await read_to_end(*waiting);
    CHECK(all.finish_reason == FinishReason::length);
  });
}

TEST_CASE("who asks for an engine by its number waits for that one", "[engine][client][retry]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    PlayedGroup played(pool);
    co_await played.start();
    auto waiting = played.group->submit(request_of({1}, 1), EngineId{0});
    REQUIRE(waiting.has_value());
    added(*played.engines[0]);
    played.engines[0]->publish(EngineDead{{}, "it is gone"});
    co_await eventually([&] { return !played.group->is_up(EngineId{0}); });
    CHECK(played.group->num_live() == 1);
    CHECK(added(*played.engines[1]).empty());
    played.begin(0);
    std::vector<RequestId> handed;
    co_await eventually([&] {
      for (const RequestId id : added(*played.engines[0])) handed.push_back(id);
      return !handed.empty();
    });
    CHECK(handed == std::vector{waiting->id()});
    played.finish(0, waiting->id());
    const RequestOutput all = co_await read_to_end(*waiting);
    CHECK(all.finish_reason == FinishReason::length);
  });
}

TEST_CASE("a drain waits for those who wait for an engine's return", "[engine][client][retry]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    PlayedGroup played(pool);
    co_await played.start();
    co_await lose_second(played);
    auto waiting = played.group->submit(request_of({1}, 1));
    REQUIRE(waiting.has_value());
    co_await lose_all(played);
    added(*played.engines[0]);
    std::thread returning([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      played.begin(0);
      while (added(*played.engines[0]).empty()) std::this_thread::yield();
      played.finish(0, waiting->id());
    });
    co_await played.group->drain(Clock::now() + std::chrono::seconds(20));
    returning.join();
    const RequestOutput all = co_await read_to_end(*waiting);
    CHECK(all.finish_reason == FinishReason::length);
  });
}

TEST_CASE("an engine with another model than the front end's fails start-up", "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    EngineGroupOptions options;
    options.has_our_model = [](const Ready& ready) -> Result<void> {
      if (ready.model_fingerprint != "other") return {};
      return Error{ErrorCode::invalid_argument, "another model", "model_fingerprint"};
    };
    PlayedGroup played(pool, options);
    Ready other = default_ready();
    other.model_fingerprint = "other";
    for (auto& engine : played.engines) {
      engine->publish(Hello{EngineId{0}, "played"});
      engine->publish(Ready(other));
    }
    const auto started = co_await played.group->start();
    REQUIRE(started.has_error());
    CHECK(started.error().field == "model_fingerprint");
  });
}

TEST_CASE("an engine that comes back as another is refused, and said to be what it was",
          "[engine][client]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    PlayedGroup played(pool);
    CHECK_FALSE(played.group->has_started());
    co_await played.start();
    CHECK(played.group->has_started());
    CHECK(played.group->is_up(EngineId{0}));
    co_await lose_all(played);
    CHECK_FALSE(played.group->is_up(EngineId{0}));
    const auto refused = played.group->submit(request_of({1}, 1));
    CHECK(refused.error().detail.starts_with("no engine is ready: "));
    Ready other = default_ready();
    const int before = other.block_size;
    other.block_size *= 3;
    played.engines[0]->publish(Hello{EngineId{0}, "played"});
    played.engines[0]->publish(std::move(other));
    const std::string said = "engine 0 is back with another block_size: it had " +
                             std::to_string(before) + ", now it has " + std::to_string(3 * before);
    co_await eventually([&] { return played.group->progress().find(said) != std::string::npos; });
    CHECK_FALSE(played.group->is_up(EngineId{0}));
    played.begin(0);
    co_await eventually([&] { return played.group->is_up(EngineId{0}); });
  });
}

TEST_CASE("it does not wait for ever, nor beyond the server", "[engine][client][retry]") {
  run(2, [](asio::any_io_executor pool) -> awaitable<void> {
    for (const bool drains : {false, true}) {
      EngineGroupOptions options;
      options.orphan_patience = std::chrono::milliseconds(drains ? 60'000 : 20);
      PlayedGroup played(pool, options);
      co_await played.start();
      co_await lose_second(played);
      auto waiting = played.group->submit(request_of({1}, 1));
      REQUIRE(waiting.has_value());
      co_await lose_all(played);
      if (drains) co_await played.group->drain(Clock::now());
      const RequestOutput end = co_await read_to_end(*waiting);
      CHECK(end.finish_reason == FinishReason::error);
      REQUIRE(end.error.has_value());
      CHECK(end.error->code == ErrorCode::unavailable);
    }
  });
}

}  // namespace
}  // namespace quire::test
