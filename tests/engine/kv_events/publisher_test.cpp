#include "engine/kv_events/publisher.h"

#include <zmq.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "base/error.h"

namespace quire {
namespace {

constexpr int kBriefMs = 20;
constexpr int kLongMs = 10'000;

// A router's side.
class Client {
 public:
  Client(int type, const std::string& endpoint) : socket_(zmq_socket(context_, type)) {
    wait_for(kLongMs);
    if (type == ZMQ_SUB) zmq_setsockopt(socket_, ZMQ_SUBSCRIBE, "", 0);
    zmq_connect(socket_, endpoint.c_str());
  }
  ~Client() {
    const int none = 0;
    zmq_setsockopt(socket_, ZMQ_LINGER, &none, sizeof none);
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }

  void wait_for(int ms) { zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &ms, sizeof ms); }

  // Frames of one message.
  void send(const std::vector<std::string>& frames) {
    for (std::size_t i = 0; i < frames.size(); ++i)
      zmq_send(socket_, frames[i].data(), frames[i].size(),
               i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
  }

  // Empty when nothing came in time.
  std::vector<std::string> receive() {
    std::vector<std::string> frames;
    for (int more = 1; more != 0;) {
      zmq_msg_t message;
      zmq_msg_init(&message);
      if (zmq_msg_recv(&message, socket_, 0) < 0) return {};
      frames.emplace_back(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
      more = zmq_msg_more(&message);
      zmq_msg_close(&message);
    }
    return frames;
  }

 private:
  void* context_ = zmq_ctx_new();
  void* socket_;
};

std::string big_endian(std::uint64_t number) {
  std::string bytes(8, '\0');
  for (std::size_t i = 8; i-- > 0; number >>= 8) bytes[i] = static_cast<char>(number);
  return bytes;
}

KvEventsConfig loopback() {
  return {.endpoint = "tcp://127.0.0.1:*",
          .replay_endpoint = "tcp://127.0.0.1:*",
          .topic = "kv@pod@model"};
}

std::vector<KvEvent> removal(int group) {
  return {BlockRemoved{.hash = {Sha256{}}, .group = group}};
}

// ZeroMQ drops what is sent before a subscription arrives. Returns how many batches that took.
std::uint64_t join(KvEventPublisher& publisher, Client& subscriber) {
  subscriber.wait_for(kBriefMs);
  std::uint64_t published = 0;
  std::vector<std::string> seen;
  while (seen.empty() && published < 500) {
    publisher.publish(removal(0));
    ++published;
    seen = subscriber.receive();
  }
  subscriber.wait_for(kLongMs);
  REQUIRE(seen.size() == 3);
  REQUIRE(seen[1] == big_endian(published - 1));
  return published;
}

}  // namespace

TEST_CASE("A subscriber gets topic, sequence number and batch, in order") {
  KvEventPublisher publisher(loopback(), {});
  Client subscriber(ZMQ_SUB, publisher.endpoint());
  const std::uint64_t first = join(publisher, subscriber);
  for (int i = 0; i < 100; ++i) publisher.publish(removal(i));
  publisher.publish({});  // no batch, no number
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto frames = subscriber.receive();
    REQUIRE(frames.size() == 3);
    CHECK(frames[0] == "kv@pod@model");
    CHECK(frames[1] == big_endian(first + i));
    // …, ["BlockRemoved", [0], "GPU", i]], rank 0]
    CHECK(frames[2].substr(10) == std::string("\x91\x94\xac") + "BlockRemoved" + "\x91" +
                                      std::string(1, '\0') + "\xa3GPU" + static_cast<char>(i) +
                                      std::string(1, '\0'));
  }
}

TEST_CASE("Replay sends what is kept from a number on, then the end mark") {
  KvEventsConfig config = loopback();
  config.buffer_steps = 5;
  KvEventPublisher publisher(config, {});
  for (int i = 0; i < 10; ++i) publisher.publish(removal(i));
  for (const auto& [asked, answered] : {std::pair{0, 5}, {7, 7}, {10, 10}}) {
    CAPTURE(asked);
    Client dealer(ZMQ_DEALER, publisher.replay_endpoint());
    dealer.send({"", big_endian(static_cast<std::uint64_t>(asked))});
    for (int i = answered; i < 10; ++i) {
      const auto frames = dealer.receive();
      REQUIRE(frames.size() == 3);
      CHECK(frames[0].empty());
      CHECK(frames[1] == big_endian(static_cast<std::uint64_t>(i)));
      CHECK(frames[2].size() > 10);
    }
    const auto end = dealer.receive();
    REQUIRE(end.size() == 3);
    CHECK(end[1] == std::string(8, '\xff'));
    CHECK(end[2].empty());
  }
}

TEST_CASE("All that is kept is replayed, however much it is and however late it is read") {
  constexpr int kBatches = 6000;
  KvEventPublisher publisher(loopback(), {});
  for (int i = 0; i < kBatches; ++i) publisher.publish(removal(i % 128));
  Client dealer(ZMQ_DEALER, publisher.replay_endpoint());
  const std::string end_mark(8, '\xff');
  bool is_last_sent = false;
  while (!is_last_sent) {  // the publisher's thread has yet to encode them
    dealer.send({"", big_endian(kBatches - 1)});
    for (auto frames = dealer.receive(); frames.at(1) != end_mark; frames = dealer.receive())
      is_last_sent = true;
  }
  dealer.send({"", big_endian(0)});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  int count = 0;
  for (auto frames = dealer.receive(); frames.size() == 3; frames = dealer.receive(), ++count) {
    if (frames[1] == end_mark) break;
    REQUIRE(frames[1] == big_endian(static_cast<std::uint64_t>(count)));
  }
  CHECK(count == kBatches);
}

TEST_CASE("A client that has read all may ask for all again") {
  constexpr int kBatches = 100;
  KvEventsConfig config = loopback();
  config.buffer_steps = kBatches;
  KvEventPublisher publisher(config, {});
  for (int i = 0; i < kBatches; ++i) publisher.publish(removal(i));
  Client dealer(ZMQ_DEALER, publisher.replay_endpoint());
  const std::string end_mark(8, '\xff');
  int most = 0;
  for (int times = 0; times < 4 || most < kBatches; ++times) {
    dealer.send({"", big_endian(0)});
    int count = 0;
    auto frames = dealer.receive();
    for (; frames.size() == 3 && frames[1] != end_mark; frames = dealer.receive()) ++count;
    REQUIRE(frames.size() == 3);
    most = std::max(most, count);
    if (most == kBatches) REQUIRE(count == kBatches);
  }
}

TEST_CASE("A malformed replay request is passed over") {
  KvEventPublisher publisher(loopback(), {});
  publisher.publish(removal(1));
  Client dealer(ZMQ_DEALER, publisher.replay_endpoint());
  dealer.send({"", "short"});
  dealer.send({"alone"});
  dealer.send({"", big_endian(1), "more"});
  dealer.send({"", big_endian(1)});
  const auto frames = dealer.receive();
  REQUIRE(frames.size() == 3);
  CHECK(frames[1] == std::string(8, '\xff'));
}

TEST_CASE("What was published before the end is still sent") {
  auto publisher = std::make_unique<KvEventPublisher>(loopback(), KvEventFormat{});
  Client subscriber(ZMQ_SUB, publisher->endpoint());
  join(*publisher, subscriber);
  for (int i = 0; i < 50; ++i) publisher->publish(removal(i));
  publisher.reset();
  for (int i = 0; i < 50; ++i) REQUIRE(subscriber.receive().size() == 3);
}

TEST_CASE("An address in use is refused by name") {
  KvEventPublisher publisher(loopback(), {});
  KvEventsConfig taken = loopback();
  taken.replay_endpoint = publisher.replay_endpoint();
  CHECK_THROWS_WITH(KvEventPublisher(taken, {}), Catch::Contains(publisher.replay_endpoint()));
  taken.replay_endpoint = "nonsense";
  CHECK_THROWS_AS(KvEventPublisher(taken, {}), Failure);
}

TEST_CASE("Each data-parallel rank has its own address") {
  CHECK(endpoint_of_rank("tcp://*:5557", 0) == "tcp://*:5557");
  CHECK(endpoint_of_rank("tcp://*:5557", 3) == "tcp://*:5560");
  CHECK(endpoint_of_rank("tcp://127.0.0.1:*", 3) == "tcp://127.0.0.1:*");
  CHECK(endpoint_of_rank("ipc:///tmp/kv", 2) == "ipc:///tmp/kv_dp2");
  CHECK_THROWS_AS(endpoint_of_rank("tcp://host", 1), Failure);
  CHECK_THROWS_AS(endpoint_of_rank("tcp://*:99999", 0), Failure);
  CHECK_THROWS_AS(endpoint_of_rank("tcp://*:65535", 1), Failure);
}

}  // namespace quire
