// Whoever connects to Mooncake's ports and does nothing, or more than there is room for.

#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "tests/engine/kv_transfer/mooncake/ends.h"
#include "tests/engine/kv_transfer/plain_line.h"
#include "tests/engine/kv_transfer/scarce_descriptors.h"

namespace quire::test {
namespace {

constexpr std::size_t kPlaces = 8;

// Connections that say nothing, or the beginning of something.
std::vector<Descriptor> strangers(std::uint16_t port, std::string_view beginning) {
  std::vector<Descriptor> lines;
  for (std::size_t i = 0; i < 3 * kPlaces; ++i) {
    lines.push_back(plain_socket());
    connect_here(lines.back(), port);
    if (i % 2 == 0) send_all(lines.back(), beginning);
  }
  std::this_thread::sleep_for(20ms);
  return lines;
}

void check_fetches(MooncakeEnds& ends) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const MooncakeEnds::Prefill prefill = ends.made(seed, 60);
    ends.keep(seed, prefill);
    const KvFetched fetched = ends.fetched(seed, prefill);
    INFO(fetched.detail);
    REQUIRE_FALSE(fetched.loss);
    CHECK(MooncakeEnds::is_right(fetched, prefill, 0));
    ends.reader().release(RequestId{seed});
  }
}

MooncakeEnds::Options few_places() {
  MooncakeEnds::Options options;
  options.silence = 5s;
  options.patience = 5s;
  options.max_connections = kPlaces;
  return options;
}

}  // namespace

TEST_CASE("strangers do not keep writers out", "[mooncake]") {
  MooncakeEnds ends(few_places());
  const auto idle = strangers(ends.reader_port(), std::string_view("\x20\0\0\0\0\0\0\0\1", 9));
  check_fetches(ends);
}

TEST_CASE("strangers do not keep those out who ask", "[mooncake]") {
  MooncakeEnds ends(few_places());
  const auto idle = strangers(ends.owner_port(), "GET /query HT");
  check_fetches(ends);
}

TEST_CASE("a fetch for which there are no descriptors is lost, and the next is not", "[mooncake]") {
  MooncakeEnds ends;
  const std::size_t descriptors = num_descriptors();
  const MooncakeEnds::Prefill prefill = ends.made(1, 60);
  ends.keep(1, prefill);
  for (int num_free = 0; num_free <= 6; ++num_free) {
    const ScarceDescriptors scarce(num_free);
    const KvFetched fetched = ends.fetched(1, prefill);
    if (fetched.loss) CHECK(fetched.loss == KvLossReason::peer_lost);
    if (!fetched.loss) break;
  }
  CHECK(comes_true([&] { return num_descriptors() <= descriptors; }));
  std::this_thread::sleep_for(1100ms);  // what was silent is left alone for so long
  ends.stop_owner();
  ends.start_owner();
  check_fetches(ends);
}

TEST_CASE("whoever waits for its turn to write sleeps", "[mooncake]") {
  asio::io_context context(1);
  std::array<int, 2> pair{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) == 0);
  const Descriptor deaf(pair[1]);
  MooncakeLink link(std::make_unique<ByteLine>(context.get_executor(), Descriptor(pair[0]), 1h));
  for (int i = 0; i < 3; ++i)
    asio::co_spawn(context, link.send(std::string(1 << 20, 'x')), asio::detached);
  const auto num_waits = [] {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  };
  context.run_for(50ms);
  const auto before = num_waits();
  context.run_for(300ms);
  CHECK(num_waits() - before < 50);
  std::string all(3 * ((1 << 20) + 9), '\0');  // and then each has its own
  std::size_t have = 0;
  for (; have < all.size(); context.run_for(1ms)) {
    const ssize_t got = ::recv(deaf.get(), all.data() + have, all.size() - have, MSG_DONTWAIT);
    if (got > 0) have += static_cast<std::size_t>(got);
  }
  for (std::size_t i = 0; i < 3; ++i) CHECK(all[i * ((1 << 20) + 9)] == all[0]);
  CHECK(static_cast<std::size_t>(std::ranges::count(all, 'x')) == std::size_t{3} << 20);
}

}  // namespace quire::test
