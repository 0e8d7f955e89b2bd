// Front ends as the engine's end of sockets sees them: ends that are told, slow readers, strangers.

#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "engine/wire/connection.h"
#include "engine/wire/encoding.h"
#include "engine/wire/socket_source.h"
#include "tests/engine/wire/socket_line.h"

namespace quire::test {
namespace {

using std::chrono::milliseconds;

SocketOptions options() { return {.secret = "a"}; }

TEST_CASE("an engine that leaves takes nothing new and finishes what it has",
          "[engine][wire][socket]") {
  const SocketAddress address = new_unix_address();
  SocketLine line;
  line.engine = make_socket_engine_end({.socket = options(), .listen = address});
  line.client = make_socket_client_end(address, options());
  line.become_ready();
  line.send(small_request(1));
  const RequestId id = line.command<AddRequest>().id;
  CHECK(line.engine->num_live() == 1);
  line.engine->leave();
  CHECK(line.event<StartupProgress>().stage == "was asked to end, and finishes what runs");
  Command late = small_request(2);
  CHECK_FALSE(line.client->send(late));
  StepOutput step;
  step.requests.emplace_back().id = id;
  step.requests.back().finish_reason = FinishReason::stop;
  line.engine->publish(std::move(step));
  CHECK(line.event<StepOutput>().requests.at(0).finish_reason == FinishReason::stop);
  for (int i = 0; i < 1000 && line.engine->num_live() > 0; ++i)
    std::this_thread::sleep_for(milliseconds(5));
  CHECK(line.engine->num_live() == 0);
  ::unlink(address.path.c_str());
}

TEST_CASE("what has ended lives until a slow front end has been sent it",
          "[engine][wire][socket]") {
  const SocketAddress address = new_unix_address();
  auto engine = make_socket_engine_end({.socket = options(), .listen = address});
  engine->publish(Hello{EngineId{0}, "test"});
  auto peer = dial(address, WireConnection::Role::front_end, options());
  REQUIRE(peer.has_value());
  std::vector<std::string> frames;
  while (frames.empty()) {
    REQUIRE(peer->write().has_value());
    REQUIRE(peer->read(frames).has_value());
  }
  peer->queue(encode(Command(Configure{"test", {}}), peer->opened_at()));
  REQUIRE(peer->write().has_value());
  std::vector<Command> commands;
  wait_for<Configure>(commands, [&](auto& all) { engine->take(all); });
  engine->publish(Ready{});
  peer->queue(encode(Command(small_request(1)), peer->opened_at()));
  REQUIRE(peer->write().has_value());
  const auto add = wait_for<AddRequest>(commands, [&](auto& all) { engine->take(all); });
  engine->leave();
  StepOutput step;
  step.requests.emplace_back().id = add.id;
  step.requests.back().finish_reason = FinishReason::stop;
  step.requests.back().token_ids.assign(8 << 20, 1'000'000);  // more than a socket holds
  engine->publish(std::move(step));
  for (int i = 0; i < 30; ++i) {
    CHECK(engine->num_live() > 0);
    std::this_thread::sleep_for(milliseconds(10));
  }
  for (int i = 0; i < 4000 && engine->num_live() > 0; ++i) {
    frames.clear();
    REQUIRE(peer->read(frames).has_value());
    std::this_thread::sleep_for(milliseconds(1));
  }
  CHECK(engine->num_live() == 0);
  ::unlink(address.path.c_str());
}

TEST_CASE("who connects to an engine and says nothing keeps no front end out",
          "[engine][wire][socket]") {
  const bool is_unix = GENERATE(true, false);
  SocketAddress address = new_unix_address();
  if (!is_unix) {
    const auto free = listen_at(*parse_socket_address("127.0.0.1:0"));
    address = *parse_socket_address("127.0.0.1:" + std::to_string(port_of(*free)));
  }
  SocketLine line;
  line.engine = make_socket_engine_end({.socket = options(), .listen = address});
  std::vector<Descriptor> silent;
  const auto come = [&](int count) {
    for (int i = 0; i < count; ++i) silent.push_back(std::move(*begin_connect(address)));
    std::this_thread::sleep_for(milliseconds(50));  // its turn to take them in
  };
  come(40);
  come(40);
  const auto begun = std::chrono::steady_clock::now();
  line.client = make_socket_client_end(address, options());
  line.become_ready();
  CHECK(std::chrono::steady_clock::now() - begun < milliseconds(4000));  // of one silent one's time
  come(40);  // and they push nobody out who has proved itself
  line.send(small_request(6));
  CHECK(line.command<AddRequest>().prompt == std::vector<TokenId>{1, 2, 3});
  if (is_unix) ::unlink(address.path.c_str());
}

}  // namespace
}  // namespace quire::test
