#include "tests/engine/wire/socket_line.h"

#include <unistd.h>

#include <string>

namespace quire::test {

SocketAddress new_unix_address() {
  static int number = 0;
  return *parse_socket_address("unix:/tmp/quire_socket_line_" + std::to_string(::getpid()) + "_" +
                               std::to_string(number++));
}

void SocketLine::become_ready() {
  engine->publish(Hello{EngineId{0}, "test"});
  event<Hello>();
  send(Configure{"test", {}});
  command<Configure>();
  engine->publish(Ready{});
  event<Ready>();
}

AddRequest small_request(std::uint64_t id) {
  AddRequest add;
  add.id = RequestId{id};
  add.prompt = {1, 2, 3};
  return add;
}

}  // namespace quire::test
