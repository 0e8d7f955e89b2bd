#include "tests/engine/kv_transfer/mooncake/relay.h"

#include <cstring>
#include <span>
#include <utility>

#include "engine/kv_mooncake/bootstrap.h"
#include "engine/kv_mooncake/segment.h"
#include "engine/kv_mooncake/write_frame.h"
#include "engine/kv_mooncake/xfer_messages.h"
#include "engine/kv_mooncake/zmtp.h"

namespace quire::test {
namespace {

using Frame = std::optional<std::string>;
using Way = std::function<std::uint16_t(std::uint16_t target)>;

Frame rest_of(std::string head, const ReceiveBytes& receive, std::uint64_t size) {
  const Frame body = receive(size);
  return body ? Frame(head + *body) : std::nullopt;
}

Frame http_head(const ReceiveBytes& receive) {
  std::string head;
  while (!head.ends_with("\r\n\r\n")) {
    const Frame one = receive(1);
    if (!one) return std::nullopt;
    head += *one;
  }
  return head;
}

Frame bootstrap_frame(const ReceiveBytes& receive, bool towards_reader, const Way& way) {
  constexpr std::string_view kLength = "Content-Length: ", kHost = "tcp://127.0.0.1:";
  const Frame head = http_head(receive);
  if (!head || !towards_reader) return head;
  const Frame body = receive(std::stoul(head->substr(head->find(kLength) + kLength.size())));
  if (!body) return std::nullopt;
  const std::size_t at = body->find(kHost);
  if (at == std::string::npos) return *head + *body;
  const std::size_t first = at + kHost.size(), end = body->find('"', first);
  const auto port = static_cast<std::uint16_t>(std::stoul(body->substr(first, end - first)));
  return http_reply("GET /query HTTP/1.1\r\n",
                    body->substr(0, first) + std::to_string(way(port)) + body->substr(end));
}

Frame zmtp_frame(const ReceiveBytes& receive, bool towards_reader, int index, const Way& way) {
  if (index == 0) return receive(kZmtpGreetingBytes);
  const Frame first = receive(1);
  if (!first) return std::nullopt;
  const auto flags = parse_zmtp_flags(static_cast<std::byte>(first->front()));
  if (!flags) return std::nullopt;
  const Frame length = receive(flags->is_long ? 8 : 1);
  if (!length) return std::nullopt;
  const auto size = parse_zmtp_size(std::as_bytes(std::span(*length)));
  const Frame body = size ? receive(*size) : std::nullopt;
  if (!body) return std::nullopt;
  if (towards_reader || flags->is_command) return *first + *length + *body;
  auto ask = parse_ask(*body);
  if (!ask) return *first + *length + *body;
  ask->port = way(ask->port);
  return zmtp_message(encode_ask(*ask));
}

Frame hello_frame(const ReceiveBytes& receive, bool towards_reader, const Way& way) {
  const Frame length = receive(8);
  if (!length) return std::nullopt;
  std::uint64_t size = 0;
  std::memcpy(&size, length->data(), sizeof size);
  const Frame body = receive(size);
  if (!body || !towards_reader) return body ? Frame(*length + *body) : std::nullopt;
  const auto hello = parse_mooncake_hello(*body);
  auto segment = hello ? parse_segment(hello->json) : Result<MooncakeSegment>(MooncakeSegment());
  if (!segment || segment->data_port == 0) return *length + *body;
  segment->data_port = way(segment->data_port);
  return mooncake_hello(hello->kind, segment_json(*segment));
}

Frame data_frame(const ReceiveBytes& receive, bool towards_reader) {
  if (towards_reader) return receive(sizeof(MooncakeStatusFrame));
  const Frame head = receive(kMooncakeHeaderBytes);
  if (!head) return std::nullopt;
  MooncakeHeader bytes{};
  std::memcpy(bytes.data(), head->data(), bytes.size());
  const auto write = parse_mooncake_write(bytes);
  return write ? rest_of(*head, receive, write->bytes) : std::nullopt;
}

}  // namespace

MooncakeFault any_mooncake_fault(std::uint64_t seed, int num_writes) {
  std::mt19937_64 random(seed);
  MooncakeFault fault;
  fault.leg = static_cast<MooncakeLeg>(random() % kNumMooncakeLegs);
  fault.plan = any_fault(random(), 1);
  const int num_frames = fault.leg == MooncakeLeg::asks   ? 4  // greeting, READY, two messages
                         : fault.leg == MooncakeLeg::data ? num_writes
                                                          : 1;
  fault.plan.frame = static_cast<int>(random() % static_cast<std::uint64_t>(num_frames));
  return fault;
}

MooncakeRelay::MooncakeRelay(std::uint16_t bootstrap, MooncakeFault fault) : fault_(fault) {
  port_ = way_to(MooncakeLeg::bootstrap, bootstrap);
}

// In this order: each makes the next.
MooncakeRelay::~MooncakeRelay() {
  for (auto& leg : legs_) leg.reset();
}

bool MooncakeRelay::has_struck() {
  const std::lock_guard lock(mutex_);
  const auto& leg = legs_[static_cast<std::size_t>(fault_.leg)];
  return leg != nullptr && leg->has_struck();
}

std::uint16_t MooncakeRelay::way_to(MooncakeLeg leg, std::uint16_t target) {
  const std::lock_guard lock(mutex_);
  auto& relay = legs_[static_cast<std::size_t>(leg)];
  if (relay == nullptr)
    relay = std::make_unique<FaultyRelay>(target, leg == fault_.leg ? fault_.plan : FaultPlan(),
                                          frames_of(leg));
  return relay->port();
}

NextFrame MooncakeRelay::frames_of(MooncakeLeg leg) {
  const auto next = static_cast<MooncakeLeg>(static_cast<int>(leg) + 1);
  const Way way = [this, next](std::uint16_t target) { return way_to(next, target); };
  return [leg, way](const ReceiveBytes& receive, bool towards_reader, int index) -> Frame {
    switch (leg) {
      case MooncakeLeg::bootstrap:
        return bootstrap_frame(receive, towards_reader, way);
      case MooncakeLeg::asks:
        return zmtp_frame(receive, towards_reader, index, way);
      case MooncakeLeg::hello:
        return hello_frame(receive, towards_reader, way);
      case MooncakeLeg::data:
        return data_frame(receive, towards_reader);
    }
    return std::nullopt;
  };
}

}  // namespace quire::test
