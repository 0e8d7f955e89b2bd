#include "base/host_names.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <catch2/catch.hpp>
#include <condition_variable>

using namespace quire;
using namespace std::chrono_literals;

namespace {

HostAddress address_of(const char* text) {
  HostAddress address;
  auto& name = reinterpret_cast<sockaddr_in&>(address.name);
  name.sin_family = AF_INET;
  ::inet_pton(AF_INET, text, &name.sin_addr);
  address.size = sizeof name;
  return address;
}

std::string text_of(const HostAddress& address) {
  char text[INET_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address.name).sin_addr, text,
              sizeof text);
  return text;
}

// A name server that says nothing until it is let.
struct NameServer {
  std::mutex mutex;
  std::condition_variable changed;
  bool answers = false;
  int num_asked = 0;
  std::vector<HostAddress> addresses{address_of("10.0.0.1"), address_of("10.0.0.2")};

  void let() {
    const std::lock_guard lock(mutex);
    answers = true;
    changed.notify_all();
  }
  HostAddresses look_up() {
    std::unique_lock lock(mutex);
    ++num_asked;
    changed.wait(lock, [this] { return answers; });
    if (addresses.empty()) return Error{ErrorCode::unavailable, "no such name", {}};
    return addresses;
  }
};

// Shared with threads that outlive the test.
HostNames names_of(const std::shared_ptr<NameServer>& server) {
  return HostNames([server](const std::string&, const std::string&) { return server->look_up(); });
}

}  // namespace

TEST_CASE("a name server that is silent holds nobody up", "[base][host_names]") {
  const auto server = std::make_shared<NameServer>();
  {
    HostNames names = names_of(server);
    for (int attempt = 0; attempt < 3; ++attempt)
      CHECK(names.next("engine.example", "1", 1ms).error().code == ErrorCode::overloaded);
    CHECK(text_of(names.next("127.0.0.7", "1", 0ms)->address) == "127.0.0.7");
  }  // and its thread is not waited for
  HostNames names = names_of(server);
  CHECK(names.next("engine.example", "1", 1ms).has_error());
  server->let();
  CHECK(names.next("engine.example", "1", 1min).has_value());
  CHECK(server->num_asked <= 2);  // attempts share a look-up
}

TEST_CASE("each attempt takes the next address, and behind the last the name is looked up again",
          "[base][host_names]") {
  const auto server = std::make_shared<NameServer>();
  server->let();
  HostNames names = names_of(server);
  const auto next = [&] { return *names.next("engine.example", "1", 1min); };
  CHECK(text_of(next().address) == "10.0.0.1");
  const auto second = next();
  CHECK(text_of(second.address) == "10.0.0.2");
  CHECK(second.is_last);
  server->addresses = {address_of("10.0.0.3")};
  const auto third = next();
  CHECK(text_of(third.address) == "10.0.0.3");
  CHECK(third.is_last);
  server->addresses.clear();
  const auto none = names.next("engine.example", "1", 1min);
  REQUIRE(none.has_error());
  CHECK(none.error().code == ErrorCode::unavailable);
  server->addresses = {address_of("10.0.0.4")};
  CHECK(text_of(next().address) == "10.0.0.4");
}
