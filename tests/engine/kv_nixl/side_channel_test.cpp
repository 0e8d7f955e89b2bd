// Questions and answers over ZeroMQ.

#include "engine/kv_nixl/side_channel.h"

#include <catch2/catch.hpp>
#include <thread>

namespace quire::test {
namespace {

using Clock = std::chrono::steady_clock;

SocketAddress local(std::uint16_t port) {
  SocketAddress address;
  address.host = "127.0.0.1";
  address.port = port;
  return address;
}

}  // namespace

TEST_CASE("a question is answered with all of its frames", "[nixl]") {
  SideChannel owner, reader;
  const std::uint16_t port = owner.listen(local(0));
  const auto question = reader.ask(local(port), "what?");
  CHECK_FALSE(question->take());
  std::optional<std::vector<std::string>> answer;
  for (const auto end = Clock::now() + std::chrono::seconds(10); !answer && Clock::now() < end;) {
    owner.wait(Clock::now() + std::chrono::milliseconds(5));
    owner.answer_all([](std::string_view asked) {
      return std::vector<std::string>{std::string(asked) + " this", "and that"};
    });
    reader.wait(Clock::now() + std::chrono::milliseconds(5));
    answer = question->take();
  }
  REQUIRE(answer);
  CHECK(*answer == std::vector<std::string>{"what? this", "and that"});
}

TEST_CASE("nobody at the other end is no answer, and nothing waits for it", "[nixl]") {
  SideChannel reader;
  const auto start = Clock::now();
  const auto question = reader.ask(local(1), "what?");
  reader.wait(Clock::now() + std::chrono::milliseconds(50));
  CHECK_FALSE(question->take());
  CHECK(Clock::now() - start < std::chrono::seconds(5));
}

TEST_CASE("a wait ends when somebody wakes it", "[nixl]") {
  SideChannel channel;
  std::thread other([&] { channel.wake(); });
  const auto start = Clock::now();
  channel.wait(Clock::now() + std::chrono::seconds(20));
  CHECK(Clock::now() - start < std::chrono::seconds(10));
  other.join();
}

TEST_CASE("a port that is taken is refused", "[nixl]") {
  SideChannel one, two;
  const std::uint16_t port = one.listen(local(0));
  CHECK_THROWS_WITH(two.listen(local(port)), Catch::Contains("KvTransferConfig::listen"));
}

}  // namespace quire::test
