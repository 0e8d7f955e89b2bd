#include "tests/engine/kv_transfer/faulty_relay.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>

#include "engine/kv_transfer/content/frames.h"

namespace quire::test {
namespace {

constexpr int kLookAround = 5;  // ms

SocketAddress local(std::uint16_t port) {
  SocketAddress address;
  address.host = "127.0.0.1";
  address.port = port;
  return address;
}

}  // namespace

struct FaultyRelay::Line {
  Descriptor reader, owner;
  std::atomic<bool> dead = false;
  std::thread to_reader, to_owner;

  void cut() {
    dead = true;
    ::shutdown(reader.get(), SHUT_RDWR);
    ::shutdown(owner.get(), SHUT_RDWR);
  }
  std::optional<std::string> receive(int socket, std::size_t size, const std::atomic<bool>& stop) {
    std::size_t have = 0;
    std::string into(size, '\0');
    while (have < size) {
      if (stop || dead) return std::nullopt;
      pollfd waiting{socket, POLLIN, 0};
      if (::poll(&waiting, 1, kLookAround) == 0) continue;
      const ssize_t count = ::recv(socket, into.data() + have, size - have, 0);
      if (count <= 0) return std::nullopt;
      have += static_cast<std::size_t>(count);
    }
    return into;
  }
  void send(int socket, const std::string& bytes, const std::atomic<bool>& stop) {
    for (std::size_t sent = 0; sent < bytes.size() && !stop && !dead;) {
      pollfd waiting{socket, POLLOUT, 0};
      if (::poll(&waiting, 1, kLookAround) == 0) continue;
      const ssize_t count = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<std::size_t>(count);
    }
  }
};

FaultPlan any_fault(std::uint64_t seed, int num_frames) {
  std::mt19937_64 random(seed);
  FaultPlan plan;
  plan.fault = static_cast<LineFault>(random() % kNumLineFaults);
  plan.towards_reader = random() % 3 != 0;
  plan.frame = static_cast<int>(random() % (plan.towards_reader ? num_frames : 2));
  plan.every_connection = random() % 2 == 0;
  plan.seed = random();
  return plan;
}

std::optional<std::string> next_kv_frame(const ReceiveBytes& receive, bool, int) {
  const auto head = receive(kKvHeaderBytes);
  if (!head) return std::nullopt;
  std::array<std::byte, kKvHeaderBytes> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((*head)[i]);
  const auto header = parse_kv_header(bytes);
  const auto body = header ? receive(header->size) : std::nullopt;
  return body ? std::optional(*head + *body) : std::nullopt;
}

FaultyRelay::FaultyRelay(std::uint16_t target, FaultPlan plan, NextFrame next)
    : target_(target),
      plan_(plan),
      next_(std::move(next)),
      listener_(std::move(*listen_at(local(0)))) {
  accepting_ = std::thread([this] { accept(); });
}

FaultyRelay::~FaultyRelay() {
  stopping_ = true;
  accepting_.join();
  for (const auto& line : lines_) {
    line->cut();
    line->to_reader.join();
    line->to_owner.join();
  }
}

void FaultyRelay::accept() {
  while (!stopping_) {
    pollfd waiting{listener_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, kLookAround) == 0) continue;
    auto line = std::make_unique<Line>();
    line->reader = accept_from(listener_);
    auto owner = begin_connect(local(target_));
    if (!line->reader || !owner) continue;
    line->owner = std::move(*owner);
    const bool is_faulty = plan_.every_connection || lines_.empty();
    Line& one = *lines_.emplace_back(std::move(line));
    one.to_reader = std::thread([this, &one, is_faulty] { pass(one, true, is_faulty); });
    one.to_owner = std::thread([this, &one, is_faulty] { pass(one, false, is_faulty); });
  }
}

void FaultyRelay::pass(Line& line, bool towards_reader, bool is_faulty) {
  const int from = towards_reader ? line.owner.get() : line.reader.get();
  const int to = towards_reader ? line.reader.get() : line.owner.get();
  std::mt19937_64 random(plan_.seed);
  std::optional<std::string> held;
  const ReceiveBytes receive = [&](std::size_t size) {
    return line.receive(from, size, stopping_);
  };
  for (int index = 0;; ++index) {
    auto next = next_(receive, towards_reader, index);
    if (!next) return line.cut();
    std::string frame = std::move(*next);
    const bool strikes =
        is_faulty && plan_.towards_reader == towards_reader && plan_.frame == index;
    if (strikes && plan_.fault != LineFault::none) struck_ = true;
    switch (strikes ? plan_.fault : LineFault::none) {
      case LineFault::drop:
        continue;
      case LineFault::delay:
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 30));
        break;
      case LineFault::corrupt:
        frame[random() % frame.size()] ^= static_cast<char>(1 << random() % 8);
        break;
      case LineFault::duplicate:
        line.send(to, frame, stopping_);
        break;
      case LineFault::swap:
        held = std::move(frame);
        continue;
      case LineFault::cut:
        return line.cut();
      case LineFault::cut_within:
        line.send(to, frame.substr(0, random() % frame.size()), stopping_);
        return line.cut();
      case LineFault::pause_within: {
        const std::size_t first = random() % frame.size();
        line.send(to, frame.substr(0, first), stopping_);
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 50));
        frame.erase(0, first);
        break;
      }
      case LineFault::stall:
        while (!stopping_ && !line.dead)
          std::this_thread::sleep_for(std::chrono::milliseconds(kLookAround));
        return line.cut();
      case LineFault::none:
        break;
    }
    line.send(to, frame, stopping_);
    if (held) line.send(to, *std::exchange(held, std::nullopt), stopping_);
  }
}

}  // namespace quire::test
