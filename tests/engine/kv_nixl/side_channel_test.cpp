// Questions and answers over ZeroMQ.

#include "engine/kv_nixl/side_channel.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <vector>

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

TEST_CASE("of very many questions some are answered at a time, and none is forgotten", "[nixl]") {
  SideChannel owner, reader;
  const std::uint16_t port = owner.listen(local(0));
  constexpr int kMany = 3 * SideChannel::kMostAtOnce;
  std::vector<std::unique_ptr<SideChannel::Question>> questions;
  for (int i = 0; i < kMany; ++i) questions.push_back(reader.ask(local(port), "what?"));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // all of them are there
  int num_answered = 0, most = 0;
  for (const auto end = Clock::now() + std::chrono::seconds(10);
       num_answered < kMany && Clock::now() < end;) {
    owner.wait(end);
    const int before = num_answered;
    owner.answer_all([&](std::string_view) {
      ++num_answered;
      return std::vector<std::string>{"this"};
    });
    most = std::max(most, num_answered - before);
  }
  CHECK(num_answered == kMany);
  CHECK(most <= SideChannel::kMostAtOnce);
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
