#include "engine/wire/channel.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "engine/wire/in_process_channel.h"

namespace quire::test {
namespace {

Command add(std::uint64_t id) {
  AddRequest request;
  request.id = RequestId{id};
  return request;
}

StepOutput step(std::uint64_t id, TokenId token) {
  StepOutput output;
  output.tokens = {{RequestId{id}, token}};
  output.stats.step_tokens = 1;
  return output;
}

TEST_CASE("a full channel refuses requests, never aborts", "[engine][wire]") {
  ChannelEnds ends = make_in_process_channel({.max_commands = 2});
  for (std::uint64_t id : {1, 2}) {
    Command command = add(id);
    CHECK(ends.client->send(command));
  }
  Command third = add(3);
  CHECK_FALSE(ends.client->send(third));
  CHECK(std::get<AddRequest>(third).id == RequestId{3});  // still whole
  Command refused = FetchRefused{};
  CHECK_FALSE(ends.client->send(refused));
  Command abort = AbortRequest{RequestId{1}};
  CHECK(ends.client->send(abort));
  std::vector<Command> commands;
  CHECK(ends.engine->take(commands));
  CHECK(commands.size() == 3);
  CHECK(ends.client->send(third));
}

TEST_CASE("the client is told once until it takes", "[engine][wire]") {
  ChannelEnds ends = make_in_process_channel();
  int told = 0;
  ends.client->on_events([&told] { ++told; });
  for (int i = 0; i < 5; ++i) ends.engine->publish(step(1, i));
  CHECK(told == 1);
  std::vector<EngineEvent> events;
  CHECK(ends.client->take(events));
  CHECK(events.size() == 5);
  ends.engine->publish(step(1, 5));
  CHECK(told == 2);
}

TEST_CASE("steps that nobody takes are merged, without loss", "[engine][wire]") {
  ChannelEnds ends = make_in_process_channel({.max_events = 3});
  ends.engine->publish(Hello{});
  for (int i = 0; i < 10; ++i) ends.engine->publish(step(1, i));
  std::vector<EngineEvent> events;
  CHECK(ends.client->take(events));
  REQUIRE(events.size() == 3);
  std::vector<TokenId> tokens;
  int counted = 0;
  for (std::size_t i = 1; i < events.size(); ++i) {
    const auto& output = std::get<StepOutput>(events[i]);
    counted += output.stats.step_tokens;
    for (const auto& one : output.tokens) tokens.push_back(one.token);
    for (const auto& one : output.requests)
      tokens.insert(tokens.end(), one.token_ids.begin(), one.token_ids.end());
  }
  CHECK(tokens == std::vector<TokenId>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(counted == 10);
}

TEST_CASE("a sleeping engine wakes for a command and for the end", "[engine][wire]") {
  ChannelEnds ends = make_in_process_channel();
  std::atomic<int> seen = 0;
  std::atomic<bool> ended = false;
  std::thread engine([&] {
    std::vector<Command> commands;
    while (ends.engine->wait_and_take(commands)) {
      seen += static_cast<int>(commands.size());
      commands.clear();
    }
    ended = true;
  });
  for (std::uint64_t id = 0; id < 100; ++id) {
    Command command = add(id);
    CHECK(ends.client->send(command));
  }
  while (seen < 100) std::this_thread::yield();
  CHECK_FALSE(ended);
  ends.client.reset();
  engine.join();
  CHECK(ended);
}

TEST_CASE("an engine that goes away closes the line and says so", "[engine][wire]") {
  ChannelEnds ends = make_in_process_channel();
  int told = 0;
  ends.client->on_events([&told] { ++told; });
  ends.engine->publish(EngineDead{EngineId{0}, "why"});
  ends.engine.reset();
  CHECK(told == 2);
  std::vector<EngineEvent> events;
  CHECK_FALSE(ends.client->take(events));  // the last words are there anyway
  CHECK(events.size() == 1);
  Command command = add(1);
  CHECK_FALSE(ends.client->send(command));
}

}  // namespace
}  // namespace quire::test
