// Peers that are silent, started again, slow or too many: what one does is no other's loss.

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <utility>

#include "engine/kv_transfer/peers/silent_peers.h"
#include "tests/engine/kv_transfer/plain_line.h"
#include "tests/engine/kv_transfer/transfer_ends.h"

namespace quire::test {
namespace {

// Takes connections, as the system does for whoever listens, and says nothing.
class SilentPeer {
 public:
  SilentPeer() : listener_(std::move(*listen_at(address_of(0)))) {}
  KvSource source() const {
    KvSource source;
    source.address = address_of(port_of(listener_));
    source.engine = "silent";
    source.prefill = {"key", 1};
    return source;
  }

 private:
  const Descriptor listener_;
};

}  // namespace

TEST_CASE("nobody waits for a silent peer but those who ask it", "[kv_transfer]") {
  Ends ends(600ms);
  const SilentPeer silent;
  for (std::uint64_t id = 1; id <= 12; ++id)
    ends.reader().fetch(ends.fetch_of(id, silent.source()));
  const Ends::Prefill prefill = ends.keep(99);
  ends.reader().fetch(ends.fetch_of(99, prefill.source));
  const auto fetched = ends.await(13);
  CHECK(fetched.front().request == RequestId{99});
  CHECK_FALSE(fetched.front().loss);
  int left_alone = 0;
  for (std::size_t i = 1; i < fetched.size(); ++i) {
    CHECK(fetched[i].loss == KvLossReason::peer_lost);
    left_alone += fetched[i].detail.find("left alone") != std::string::npos ? 1 : 0;
  }
  CHECK(left_alone == 8);  // four asked side by side
}

TEST_CASE("a peer that answers is silent no more, whatever it answers", "[kv_transfer]") {
  Ends ends;
  Ends::Prefill prefill = ends.keep(1);
  ends.stop_owner();
  std::uint16_t port = 0;
  const auto loss_of = [&](std::uint64_t id, const std::string& engine, std::uint64_t hash) {
    KvSource source = prefill.source;
    source.address = address_of(port);
    source.engine = engine;
    KvFetch fetch = ends.fetch_of(id, source);
    fetch.prompt_hash = hash;
    ends.reader().fetch(std::move(fetch));
    return ends.await(1).front().loss;
  };
  for (int round = 0; round < 2; ++round) {
    {
      const Descriptor silent = std::move(*listen_at(address_of(0)));
      port = port_of(silent);
      CHECK(loss_of(1, "owner", 1) == KvLossReason::peer_lost);
    }
    ends.start_owner("owner", port);
    std::this_thread::sleep_for(1100ms);  // its first rest
    if (round == 0) {
      CHECK(loss_of(1, "an earlier start", 1) == KvLossReason::expired);
    } else {
      CHECK(loss_of(1, "owner", 2) == KvLossReason::prompt);
    }
    CHECK_FALSE(loss_of(1, "owner", 1));
    ends.stop_owner();
  }
}

TEST_CASE("what nobody wants any more ends at once", "[kv_transfer]") {
  Ends ends(1h);
  const SilentPeer silent;
  for (std::uint64_t id = 1; id <= 6; ++id)  // two of them wait for their turn
    ends.reader().fetch(ends.fetch_of(id, silent.source()));
  std::this_thread::sleep_for(20ms);
  for (std::uint64_t id = 1; id <= 6; ++id) ends.reader().cancel(RequestId{id});
  for (const KvFetched& one : ends.await(6)) CHECK(one.detail == "cancelled");
  ends.reader().fetch(ends.fetch_of(7, silent.source()));
  ends.reader().cancel(RequestId{7});
  CHECK(ends.await(1).front().detail == "cancelled");
  ends.check_all_came_back();
}

TEST_CASE("a peer that was started again is asked over a new line", "[kv_transfer]") {
  Ends ends(2s);
  const std::uint16_t port = ends.owner_port();
  for (std::uint64_t id = 1; id <= 4; ++id) {
    const std::string name = "start-" + std::to_string(id);
    ends.stop_owner();
    ends.start_owner(name, port);
    Ends::Prefill prefill = ends.keep(id);
    prefill.source.engine = name;
    ends.reader().watch(RequestId{id}, prefill.source);
    ends.reader().fetch(ends.fetch_of(id, prefill.source));
    const KvFetched fetched = ends.await();
    INFO(fetched.detail);
    CHECK_FALSE(fetched.loss);
    ends.reader().release(RequestId{id});
    for (int i = 0; i < 2000 && ends.kept().used_bytes() > 0; ++i) std::this_thread::sleep_for(1ms);
    CHECK(ends.kept().used_bytes() == 0);  // the release went over a line that leads somewhere
  }
}

TEST_CASE("who names another engine ends nobody's lease", "[kv_transfer]") {
  Ends ends(2s);
  const Ends::Prefill kept = ends.keep(1);
  const auto bytes = ends.kept().used_bytes();
  const Ends::Prefill released = ends.keep(2);
  KvSource forged = kept.source;
  forged.engine = "forged";
  ends.reader().watch(RequestId{1}, forged);
  ends.reader().watch(RequestId{2}, released.source);
  ends.reader().release(RequestId{1});
  ends.reader().release(RequestId{2});  // behind it, over the same line
  for (int i = 0; i < 2000 && ends.kept().used_bytes() > bytes; ++i)
    std::this_thread::sleep_for(1ms);
  CHECK(ends.kept().used_bytes() == bytes);
}

TEST_CASE("a silent peer does not end leases elsewhere", "[kv_transfer]") {
  Ends ends(Ends::Options{.silence = 3s, .lease = 300ms});
  const SilentPeer silent;
  for (std::uint64_t id = 1; id <= 3; ++id) ends.reader().watch(RequestId{id}, silent.source());
  const Ends::Prefill prefill = ends.keep(9);
  ends.reader().watch(RequestId{9}, prefill.source);
  std::this_thread::sleep_for(900ms);
  const KvKey& key = prefill.source.prefill;
  CHECK(ends.kept().find(key.key, key.generation) != nullptr);
}

TEST_CASE("lines on which nobody asks make place for those who do", "[kv_transfer]") {
  Ends ends(Ends::Options{.silence = 2s, .max_connections = 3});
  std::vector<Descriptor> idle;
  for (int i = 0; i < 8; ++i) {
    idle.push_back(plain_line(ends.owner_port()));
    if (i < 4) send_frame(idle.back(), KvFrameType::hello, KvHello());
  }
  for (std::uint64_t id = 1; id <= 40; ++id) {
    const Ends::Prefill prefill = ends.keep(id, 10);
    ends.reader().watch(RequestId{id}, prefill.source);
  }
  const Ends::Prefill wanted = ends.keep(99);
  ends.reader().fetch(ends.fetch_of(99, wanted.source));
  CHECK_FALSE(ends.await().loss);
  ends.kept().release(wanted.source.prefill.key, wanted.source.prefill.generation);
  for (std::uint64_t id = 1; id <= 40; ++id) ends.reader().release(RequestId{id});
  for (int i = 0; i < 4000 && ends.kept().used_bytes() > 0; ++i) std::this_thread::sleep_for(1ms);
  CHECK(ends.kept().used_bytes() == 0);
}

TEST_CASE("a reader that gives no sign of life holds nothing beyond the lease", "[kv_transfer]") {
  Ends ends(Ends::Options{.silence = 10s, .lease = 400ms, .bytes = 96 << 20});
  const Ends::Prefill prefill = ends.keep(1, 300'000);
  const Descriptor line = plain_line(ends.owner_port());
  send_frame(line, KvFrameType::hello, KvHello());
  KvRead read;
  read.prefill = prefill.source.prefill;
  read.num_tokens = 300'000;
  read.prompt_hash = 1;
  send_frame(line, KvFrameType::read, read);
  std::vector<char> some(1 << 16);
  const auto end = Clock::now() + 5s;  // a little now and then: never silent for long
  while (ends.kept().used_bytes() > 0 && Clock::now() < end) {
    ::recv(line.get(), some.data(), some.size(), 0);
    std::this_thread::sleep_for(10ms);
  }
  CHECK(ends.kept().used_bytes() == 0);
}

TEST_CASE("a silent peer rests longer each time, and one may try after it", "[kv_transfer]") {
  SilentPeers peers;
  const auto start = SilentPeers::Clock::time_point() + 1h;
  CHECK(peers.may_ask("a", start));
  peers.was_silent("a", start, start + 2s);
  peers.was_silent("a", start, start + 2s);  // asked at the same time
  CHECK_FALSE(peers.may_ask("a", start + 2900ms));
  CHECK(peers.may_ask("b", start + 2s));
  CHECK(peers.may_ask("a", start + 3s));
  CHECK_FALSE(peers.may_ask("a", start + 3s));  // one tries
  peers.was_silent("a", start + 3s, start + 5s);
  CHECK_FALSE(peers.may_ask("a", start + 6900ms));
  CHECK(peers.may_ask("a", start + 7s));
  peers.answered("a");
  CHECK(peers.may_ask("a", start + 7s));
  auto now = start + 10s;
  for (int i = 0; i < 10; ++i, now += 1h) peers.was_silent("a", now, now);
  CHECK(peers.may_ask("a", now));  // not for ever
}

namespace {

bool ends_line(const Descriptor& line) {
  char one = 0;
  ssize_t got = 1;
  while (got > 0) got = ::recv(line.get(), &one, 1, 0);
  return got == 0 || errno == ECONNRESET;
}

}  // namespace

TEST_CASE("a part that there is not is refused", "[kv_transfer]") {
  Ends ends(2s);
  const Ends::Prefill prefill = ends.keep(1);
  const Descriptor line = plain_line(ends.owner_port());
  send_frame(line, KvFrameType::hello, KvHello());
  CHECK(next_frame(line).first.type == KvFrameType::welcome);
  for (const auto& [part, parts] : {std::pair(0, 0), {1, 1}, {-1, 4}, {0, -1}, {5, 1 << 30}}) {
    KvRead read;
    read.prefill = prefill.source.prefill;
    read.num_tokens = 100;
    read.prompt_hash = 1;
    read.part = part;
    read.parts = parts;
    send_frame(line, KvFrameType::read, read);
    const auto [header, body] = next_frame(line);
    REQUIRE(header.type == KvFrameType::refused);
    CHECK(decode_kv<KvRefused>(body)->reason == KvLossReason::refused);
  }
}

TEST_CASE("a line of pushes carries nothing else", "[kv_transfer][push]") {
  Ends ends(2s);
  const Ends::Prefill prefill = ends.keep(1);
  KvExpect expect;
  expect.prefill = {"nobody computes this one", 0};
  expect.alive_ms = -1;
  KvRead read;
  read.prefill = prefill.source.prefill;
  for (const bool is_answer : {false, true}) {
    const Descriptor line = plain_line(ends.owner_port());
    send_frame(line, KvFrameType::hello, KvHello());
    send_frame(line, KvFrameType::expect, expect);
    CHECK(next_frame(line).first.type == KvFrameType::welcome);
    CHECK(next_frame(line).first.type == KvFrameType::alive);
    send_frame(line, is_answer ? KvFrameType::chunk : KvFrameType::read, read);
    CHECK(ends_line(line));
  }
}

}  // namespace quire::test
