// Peers that ask for more than there is: descriptors, turns, registrations.

#include <fcntl.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <ctime>

#include "tests/engine/kv_transfer/plain_line.h"
#include "tests/engine/kv_transfer/scarce_descriptors.h"
#include "tests/engine/kv_transfer/transfer_ends.h"

namespace quire::test {
namespace {

constexpr int kAtOnce = 2000;  // frames: more than the other end reads meanwhile
constexpr std::uint64_t kMostExpected = 1 << 14;

// Sends as fast as the other end takes it, until it is gone or this ends.
class Flood {
 public:
  Flood(const Descriptor& line, std::string frame) {
    for (int i = 0; i < kAtOnce; ++i) bytes_ += frame;
    sending_ = std::thread([this, &line] {
      while (!stopping_ && send_all(line, bytes_)) ++num_sent_;
    });
    while (num_sent_ == 0) std::this_thread::yield();
  }
  ~Flood() {
    stopping_ = true;
    sending_.join();
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

 private:
  std::string bytes_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> num_sent_ = 0;
  std::thread sending_;
};

}  // namespace

TEST_CASE("connections for which there is no descriptor wait, and nobody is busy meanwhile",
          "[kv_transfer]") {
  Ends ends(2s);
  const Descriptor line = plain_socket();
  {
    const ScarceDescriptors none(0);
    connect_here(line, ends.owner_port());
    const std::clock_t before = std::clock();
    std::this_thread::sleep_for(500ms);
    CHECK(std::clock() - before < CLOCKS_PER_SEC / 5);
  }
  send_frame(line, KvFrameType::hello, KvHello());
  CHECK(next_frame(line).first.type == KvFrameType::welcome);
}

TEST_CASE("a connection takes one descriptor", "[kv_transfer]") {
  Ends ends(2s);
  const Descriptor line = plain_socket();
  const ScarceDescriptors one(1);
  connect_here(line, ends.owner_port());
  send_frame(line, KvFrameType::hello, KvHello());
  CHECK(next_frame(line).first.type == KvFrameType::welcome);
}

TEST_CASE("a flood of questions does not keep others waiting", "[kv_transfer]") {
  Ends ends(1s);
  const Descriptor line = plain_line(ends.owner_port());
  send_frame(line, KvFrameType::hello, KvHello());
  const Flood flood(line, frame_of(KvFrameType::renew, KvRenew()));
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const Ends::Prefill prefill = ends.keep(seed);
    ends.reader().watch(RequestId{seed}, prefill.source);
    ends.reader().fetch(ends.fetch_of(seed, prefill.source));
    const KvFetched fetched = ends.await();
    INFO(fetched.detail);
    CHECK_FALSE(fetched.loss);
    ends.reader().release(RequestId{seed});
  }
}

TEST_CASE("a flood of signs of life does not keep others waiting", "[kv_transfer][push]") {
  Ends ends(1s);
  const Descriptor listener = std::move(*listen_at(address_of(0)));
  KvSource flooded = ends.pushed_source(1);
  flooded.address = address_of(port_of(listener));
  ends.reader().fetch(ends.fetch_of(1, flooded));
  Descriptor line;
  while (!line) line = accept_from(listener);
  const int blocks = ::fcntl(line.get(), F_GETFL) & ~O_NONBLOCK;
  REQUIRE(::fcntl(line.get(), F_SETFL, blocks) == 0);
  CHECK(next_frame(line).first.type == KvFrameType::hello);
  KvWelcome welcome;
  welcome.protocol = kKvProtocol;
  welcome.engine = "owner";
  welcome.geometry = some_geometry();
  send_frame(line, KvFrameType::welcome, welcome, 0);
  CHECK(next_frame(line).first.type == KvFrameType::expect);
  {
    const Flood flood(line, frame_with(KvFrameType::alive, {}, 0));
    const Ends::Prefill prefill = ends.keep(2);
    ends.reader().watch(RequestId{2}, prefill.source);
    ends.reader().fetch(ends.fetch_of(2, prefill.source));
    const KvFetched fetched = ends.await();
    CHECK(fetched.request == RequestId{2});
    INFO(fetched.detail);
    CHECK_FALSE(fetched.loss);
    ends.reader().release(RequestId{2});
    ends.reader().cancel(RequestId{1});
    CHECK(ends.await().detail == "cancelled");
    ::shutdown(line.get(), SHUT_RDWR);
  }
  ends.check_all_came_back();
}

TEST_CASE("lines that wait for pushes which never begin leave places to others",
          "[kv_transfer][push]") {
  Ends ends(Ends::Options{.silence = 2s, .max_connections = 6});
  KvExpect never;
  never.prefill = {"nobody computes this one", 0};
  never.alive_ms = 100;
  std::vector<Descriptor> lines;
  for (int i = 0; i < 12; ++i) {
    lines.push_back(plain_line(ends.owner_port()));
    REQUIRE(send_all(lines.back(), frame_of(KvFrameType::hello, KvHello(), 0)));
    REQUIRE(send_all(lines.back(), frame_of(KvFrameType::expect, never, 1)));
  }
  const Ends::Prefill prefill = ends.keep(1);
  ends.reader().fetch(ends.fetch_of(1, prefill.source));
  const KvFetched fetched = ends.await();
  CHECK_FALSE(fetched.loss);
  // What begins is told to the lines that are left.
  Ends::Pushing pushing = ends.begin_push(7);
  REQUIRE(ends.kept().begin(pushing.kept));
  KvExpect begun;
  begun.prefill = {pushing.kept.key, 0};
  begun.alive_ms = 100;
  REQUIRE(send_all(lines.back(), frame_of(KvFrameType::expect, begun, 2)));
  KvFrameType last = KvFrameType::alive;
  while (last == KvFrameType::alive || last == KvFrameType::welcome)
    last = next_frame(lines.back()).first.type;
  CHECK(last == KvFrameType::expected);
}

TEST_CASE("names that are expected are bounded over all lines", "[kv_transfer][push]") {
  Ends ends(2s);
  constexpr std::uint64_t kNames = 4096;  // of 1 KiB
  std::vector<Descriptor> lines;
  for (int i = 0; i < 2; ++i) {
    lines.push_back(plain_socket());
    connect_here(lines.back(), ends.owner_port());
    send_frame(lines.back(), KvFrameType::hello, KvHello());
    CHECK(next_frame(lines.back()).first.type == KvFrameType::welcome);
  }
  const auto expect = [&](const Descriptor& line, std::uint64_t stream) {
    KvExpect one;
    one.prefill = {std::to_string(stream), 0};
    one.prefill.key.resize(1024, 'x');
    one.alive_ms = 100;
    REQUIRE(send_all(line, frame_of(KvFrameType::expect, one, stream)));
  };
  const auto next_answer = [&](const Descriptor& line) {
    auto frame = next_frame(line);
    while (frame.first.type == KvFrameType::alive) frame = next_frame(line);
    return frame;
  };
  for (std::uint64_t stream = 1; stream <= kNames + 1; ++stream) expect(lines[0], stream);
  CHECK(next_answer(lines[0]).first.stream == kNames + 1);  // all before it were taken
  expect(lines[1], 1);
  const auto [header, body] = next_answer(lines[1]);
  CHECK(header.type == KvFrameType::refused);
  CHECK(decode_kv<KvRefused>(body)->reason == KvLossReason::no_room);
  lines.erase(lines.begin());  // and its names with it
  for (int i = 0; i < 1000; ++i) {
    expect(lines[0], static_cast<std::uint64_t>(2 + i));
    if (next_frame(lines[0]).first.type == KvFrameType::alive) break;
    REQUIRE(i < 999);
    std::this_thread::sleep_for(5ms);
  }
}

TEST_CASE("one registration too many is refused, and no other on its line", "[kv_transfer][push]") {
  Ends ends(2s);
  const Descriptor line = plain_socket();
  connect_here(line, ends.owner_port());
  send_frame(line, KvFrameType::hello, KvHello());
  CHECK(next_frame(line).first.type == KvFrameType::welcome);
  std::string all;
  for (std::uint64_t stream = 1; stream <= kMostExpected + 2; ++stream) {
    KvExpect expect;
    expect.prefill = {"pushed-by-the-name-" + std::to_string(stream), 0};
    expect.alive_ms = 100;
    all += frame_of(KvFrameType::expect, expect, stream);
  }
  REQUIRE(send_all(line, all));
  const auto next_answer = [&] {
    auto frame = next_frame(line);
    while (frame.first.type == KvFrameType::alive) frame = next_frame(line);
    return frame;
  };
  for (const std::uint64_t stream : {kMostExpected + 1, kMostExpected + 2}) {
    const auto [header, body] = next_answer();
    CHECK(header.type == KvFrameType::refused);
    CHECK(header.stream == stream);
    CHECK(decode_kv<KvRefused>(body)->detail.find("16384") != std::string::npos);
  }
  Ends::Pushing pushing = ends.begin_push(kMostExpected);
  REQUIRE(ends.kept().begin(pushing.kept));
  const auto [header, body] = next_answer();
  CHECK(header.type == KvFrameType::expected);
  CHECK(header.stream == kMostExpected);
  ends.kept().fail(pushing.kept.key, pushing.kept.progress.get(), KvLossReason::refused);
}

}  // namespace quire::test
