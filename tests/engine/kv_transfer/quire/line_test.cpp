// A line that is waited for: what was read already is not taken for what comes.

#include <sys/socket.h>

#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <span>
#include <string>

#include "engine/kv_transfer/quire/frame_link.h"

namespace quire::test {
namespace {

using namespace std::chrono_literals;

struct Pair {
  explicit Pair(const asio::any_io_executor& executor) : Pair(executor, made()) {}
  Pair(const asio::any_io_executor& executor, std::array<int, 2> ends)
      : near(executor, Descriptor(ends[0]), 1s), far(executor, Descriptor(ends[1]), 1s) {}
  static std::array<int, 2> made() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
    return ends;
  }
  FrameLink near, far;
};

TEST_CASE("a line is readable when something can be read", "[kv_transfer]") {
  asio::io_context context(1);
  Pair first(context.get_executor()), second(context.get_executor());
  const std::string text = "a message";
  asio::steady_timer later(context, 30ms);
  later.async_wait([&](auto) {
    asio::co_spawn(context, second.far.send(KvFrameType::renew, 2, text), asio::detached);
  });
  // Both are reported together; what is first reads what the second was reported for.
  asio::co_spawn(context, first.far.send(KvFrameType::renew, 1, text), asio::detached);
  asio::co_spawn(context, second.far.send(KvFrameType::renew, 1, text), asio::detached);
  bool was_quiet = true;
  const auto read = [&]() -> awaitable<void> {
    co_await first.near.readable();
    const KvFrameHeader header = co_await second.near.read_header(1s);
    const std::string body = co_await second.near.read_message(header);
    CHECK(body == text);
    co_await second.near.readable();
    was_quiet = second.near.is_quiet();
  };
  asio::co_spawn(context, read(), asio::detached);
  context.run();
  CHECK_FALSE(was_quiet);
}

}  // namespace
}  // namespace quire::test
