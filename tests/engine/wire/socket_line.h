#pragma once
// Both ends of a socket line, of which a test plays engine and front end.

#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/wire/socket_channel.h"

namespace quire::test {

SocketAddress new_unix_address();

// The first T that comes from a pull that appends to a list; what came before it is dropped.
template <class T, class Any, class Pull>
T wait_for(std::vector<Any>& all, Pull pull) {
  for (int i = 0; i < 2000; ++i) {
    pull(all);
    for (auto one = all.begin(); one != all.end(); ++one) {
      if (!std::holds_alternative<T>(*one)) continue;
      T found = std::get<T>(std::move(*one));
      all.erase(all.begin(), one + 1);
      return found;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  throw Failure(ErrorCode::timeout, "what was waited for did not come");
}

struct SocketLine {
  std::unique_ptr<SocketEngineEnd> engine;
  std::unique_ptr<ClientEnd> client;
  std::vector<Command> commands = {};
  std::vector<EngineEvent> events = {};

  template <class T>
  T event() {
    return wait_for<T>(events, [this](auto& all) { client->take(all); });
  }
  template <class T>
  T command() {
    return wait_for<T>(commands, [this](auto& all) { engine->take(all); });
  }
  void send(Command command) { REQUIRE(client->send(command)); }
  void become_ready();  // the handshake
};

AddRequest small_request(std::uint64_t id);

}  // namespace quire::test
