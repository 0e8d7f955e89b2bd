#include "engine/wire/socket_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "base/error.h"
#include "engine/wire/connection.h"
#include "tests/engine/wire/sample_messages.h"

namespace quire::test {
namespace {

using std::chrono::milliseconds;

SocketAddress new_address() {
  static int number = 0;
  return *parse_socket_address("unix:/tmp/quire_socket_test_" + std::to_string(::getpid()) + "_" +
                               std::to_string(number++));
}

// An engine's end of which a test plays the engine, and a front end's.
struct Line {
  SocketAddress address = new_address();
  std::unique_ptr<EngineEnd> engine;
  std::unique_ptr<ClientEnd> client;
  std::vector<Command> commands;
  std::vector<EngineEvent> events;

  explicit Line(SocketOptions options = {.secret = "a"}, const std::string& other_secret = "a") {
    listen(other_secret);
    client = make_socket_client_end(address, std::move(options));
  }
  ~Line() {
    client.reset();
    engine.reset();
    ::unlink(address.path.c_str());
  }
  void listen(const std::string& secret) {
    engine = make_socket_engine_end({.socket = {.secret = secret}, .listen = address});
    engine->publish(Hello{EngineId{0}, "test"});
  }

  template <class T>
  T wait_for_event() {
    for (int i = 0; i < 1000; ++i) {
      client->take(events);
      for (auto event = events.begin(); event != events.end(); ++event) {
        if (!std::holds_alternative<T>(*event)) continue;
        T found = std::get<T>(std::move(*event));
        events.erase(events.begin(), event + 1);
        return found;
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
    throw Failure(ErrorCode::timeout, "the event did not come");
  }
  template <class T>
  T wait_for_command() {
    for (int i = 0; i < 1000; ++i) {
      engine->take(commands);
      for (auto command = commands.begin(); command != commands.end(); ++command) {
        if (!std::holds_alternative<T>(*command)) continue;
        T found = std::get<T>(std::move(*command));
        commands.erase(commands.begin(), command + 1);
        return found;
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
    throw Failure(ErrorCode::timeout, "the command did not come");
  }
  void send(Command command) { REQUIRE(client->send(command)); }
  void become_ready() {
    wait_for_event<Hello>();
    send(Configure{"test", {}});
    wait_for_command<Configure>();
    engine->publish(Ready{});
    wait_for_event<Ready>();
  }
};

AddRequest request(std::uint64_t id) {
  AddRequest add;
  add.id = RequestId{id};
  add.prompt = {1, 2, 3};
  return add;
}

TEST_CASE("a request and its tokens cross a socket", "[engine][wire][socket]") {
  Line line;
  line.become_ready();
  line.send(request(5));
  const auto add = line.wait_for_command<AddRequest>();
  CHECK(add.prompt == std::vector<TokenId>{1, 2, 3});
  CHECK(std::chrono::abs(add.arrival - Clock::now()) < std::chrono::seconds(30));
  StepOutput step;
  step.tokens = {{add.id, 42}, {RequestId{9}, 1}};  // the second is of nobody here
  line.engine->publish(std::move(step));
  const auto got = line.wait_for_event<StepOutput>();
  REQUIRE(got.tokens.size() == 1);
  CHECK(got.tokens[0].id == RequestId{5});
  CHECK(got.tokens[0].token == 42);
}

TEST_CASE("requests of a front end that leaves are aborted", "[engine][wire][socket]") {
  Line line;
  line.become_ready();
  line.send(request(5));
  const auto add = line.wait_for_command<AddRequest>();
  line.client.reset();
  CHECK(line.wait_for_command<AbortRequest>().id == add.id);
}

TEST_CASE("two front ends may give their requests equal numbers", "[engine][wire][socket]") {
  Line line;
  line.become_ready();
  Line other;  // of its own engine, which does not count
  other.client = make_socket_client_end(line.address, {.secret = "a"});
  other.events.clear();
  other.wait_for_event<Hello>();
  other.send(Configure{"test", {}});
  other.wait_for_event<Ready>();
  line.send(request(1));
  other.send(request(1));
  const auto first = line.wait_for_command<AddRequest>();
  const auto second = line.wait_for_command<AddRequest>();
  CHECK(first.id != second.id);
}

TEST_CASE("a front end with another configuration is refused by name", "[engine][wire][socket]") {
  Line line;
  line.become_ready();
  auto second = make_socket_client_end(line.address, {.secret = "a"});
  std::swap(line.client, second);
  line.wait_for_event<Hello>();
  EngineConfig config;
  config.cache.block_size = 32;
  line.send(Configure{"test", config});
  CHECK_THAT(line.wait_for_event<EngineDead>().error, Catch::Contains("cache.block_size"));
}

TEST_CASE("another secret is refused in words", "[engine][wire][socket]") {
  Line line({.secret = "a"}, "b");
  CHECK_THAT(line.wait_for_event<EngineDead>().error, Catch::Contains("secret"));
}

TEST_CASE("an engine that ends is told, and its return too", "[engine][wire][socket]") {
  Line line;
  line.become_ready();
  line.engine.reset();
  CHECK_THAT(line.wait_for_event<EngineDead>().error, Catch::Contains("closed"));
  Command command = request(1);
  CHECK_FALSE(line.client->send(command));
  line.listen("a");
  line.wait_for_event<Hello>();
}

TEST_CASE("an engine that says nothing is given up", "[engine][wire][socket]") {
  // A listener whose process never answers, as one that is stopped.
  const SocketAddress address = new_address();
  auto listener = listen_at(address);
  REQUIRE(listener.has_value());
  auto client = make_socket_client_end(address, {.secret = "a", .silence = milliseconds(100)});
  Descriptor socket;
  while (!socket) socket = accept_from(*listener);
  WireConnection peer(std::move(socket), WireConnection::Role::engine, "a");
  std::vector<std::string> frames;
  while (!peer.is_open()) {
    REQUIRE(peer.write().has_value());
    REQUIRE(peer.read(frames).has_value());
  }
  REQUIRE(peer.write().has_value());  // the proof
  std::vector<EngineEvent> events;
  for (int i = 0; i < 400 && events.empty(); ++i) {
    client->take(events);
    std::this_thread::sleep_for(milliseconds(5));
  }
  REQUIRE(events.size() == 1);
  CHECK_THAT(std::get<EngineDead>(events[0]).error, Catch::Contains("has not answered"));
  client.reset();
  ::unlink(address.path.c_str());
}

TEST_CASE("a front end asks often enough for any engine", "[engine][wire][socket]") {
  const SocketOptions of_engine, patient{.silence = std::chrono::hours(1)};
  CHECK(patient.ping_interval() * 2 <= of_engine.silence);
  CHECK(SocketOptions{.silence = milliseconds(100)}.ping_interval() == milliseconds(25));
}

TEST_CASE("a front end that reads nothing does not stop the engine", "[engine][wire][socket]") {
  Line line;
  line.become_ready();
  line.send(request(5));
  const RequestId id = line.wait_for_command<AddRequest>().id;
  constexpr int kSteps = 20'000;
  for (int i = 0; i < kSteps; ++i) {
    StepOutput step;
    step.tokens = {{id, i}};
    line.engine->publish(std::move(step));
  }
  std::vector<TokenId> got;
  for (int i = 0; i < 2000 && got.size() < kSteps; ++i) {
    line.events.clear();
    line.client->take(line.events);
    for (const EngineEvent& event : line.events) {
      const auto* step = std::get_if<StepOutput>(&event);
      if (step == nullptr) continue;
      for (const TokenOutput& output : step->tokens) got.push_back(output.token);
      for (const RequestOutput& output : step->requests)
        got.insert(got.end(), output.token_ids.begin(), output.token_ids.end());
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  REQUIRE(got.size() == kSteps);
  for (int i = 0; i < kSteps; ++i) REQUIRE(got[static_cast<std::size_t>(i)] == i);
}

// Two ends of a pair of sockets, one of them ours.
struct Pair {
  WireConnection connection;
  Descriptor peer;
};
Pair make_pair() {
  int sockets[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets) == 0);
  return {WireConnection(Descriptor(sockets[0]), WireConnection::Role::engine, "secret"),
          Descriptor(sockets[1])};
}

TEST_CASE("a peer of another protocol is refused by its first bytes", "[engine][wire][socket]") {
  Pair pair = make_pair();
  REQUIRE(::write(pair.peer.get(), "GET / HTTP/1.1\r\n", 16) == 16);
  std::vector<std::string> frames;
  const auto read = pair.connection.read(frames);
  REQUIRE_FALSE(read.has_value());
  CHECK_THAT(read.error().detail, Catch::Contains("GET / HTTP"));
}

TEST_CASE("another version of the protocol is refused in words", "[engine][wire][socket]") {
  Pair pair = make_pair();
  const std::string bytes = "quire-engine/2 F" + std::string(32, 'n');
  REQUIRE(::write(pair.peer.get(), bytes.data(), bytes.size()) == 48);
  std::vector<std::string> frames;
  const auto read = pair.connection.read(frames);
  REQUIRE_FALSE(read.has_value());
  CHECK_THAT(read.error().detail, Catch::Contains("does not speak quire-engine/1") &&
                                      Catch::Contains("quire-engine/2"));
}

TEST_CASE("openings of any bytes never open a connection", "[engine][wire][socket][fuzz]") {
  std::uint64_t state = 7;
  const auto next = [&state] { return (state = state * 6364136223846793005u + 1) >> 33; };
  for (int round = 0; round < 3000; ++round) {
    Pair pair = make_pair();
    std::string bytes = "quire-engine/1 F";
    const std::size_t size = next() % 200;
    while (bytes.size() < 16 + size) bytes.push_back(static_cast<char>(next()));
    if (next() % 2 == 0) bytes[next() % bytes.size()] = static_cast<char>(next());
    REQUIRE(::write(pair.peer.get(), bytes.data(), bytes.size()) ==
            static_cast<ssize_t>(bytes.size()));
    std::vector<std::string> frames;
    const auto read = pair.connection.read(frames);
    CHECK_FALSE(pair.connection.is_open());
    CHECK(frames.empty());
    if (bytes.size() >= 80) CHECK_FALSE(read.has_value());
  }
}

TEST_CASE("addresses are parsed or refused with what works", "[engine][wire][socket]") {
  CHECK(parse_socket_address("unix:/run/a.sock")->path == "/run/a.sock");
  CHECK(parse_socket_address("tcp://10.0.0.7:9000")->port == 9000);
  CHECK(parse_socket_address("localhost:1")->is_loopback());
  CHECK(parse_socket_address("tcp://[::1]:9000")->host == "::1");
  CHECK_FALSE(parse_socket_address("tcp://10.0.0.7:9000")->is_loopback());
  for (const char* text : {"", "unix:", "host", "host:", ":1", "host:70000", "host:1x", "a:b:1",
                           "http://host:1/", "tcp://host"}) {
    INFO(text);
    CHECK_FALSE(parse_socket_address(text).has_value());
  }
}

}  // namespace
}  // namespace quire::test
