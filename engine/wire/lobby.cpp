#include "engine/wire/lobby.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "engine/wire/encoding.h"

namespace quire {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGlance{500};

}  // namespace

Lobby::Lobby(Descriptor listener, const SocketAddress& address, SocketOptions options)
    : listener_(std::move(listener)),
      file_(address),
      options_(std::move(options)),
      strangers_(WireConnection::Role::front_end, address.is_unix(), options_) {
  thread_ = std::thread([this] { run(); });
}

Lobby::~Lobby() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_up_.wake();
  thread_.join();
}

Result<Lobby::Guest> Lobby::next(int waker, milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::unique_lock lock(mutex_);
  ++wanted_;
  bool is_woken = false;
  while (waiting_.empty() && !is_woken) {
    const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
    if (left <= milliseconds(0)) break;
    guest_is_here_.reset();
    lock.unlock();
    std::array<pollfd, 2> polled{pollfd{waker, POLLIN, 0},
                                 pollfd{guest_is_here_.descriptor(), POLLIN, 0}};
    ::poll(polled.data(), polled.size(), static_cast<int>(left.count()));
    is_woken = polled[0].revents != 0;
    lock.lock();
  }
  --wanted_;
  if (waiting_.empty()) return Error{ErrorCode::unavailable, complaint_, {}};
  Guest guest = std::move(waiting_.front().guest);
  waiting_.pop_front();
  complaint_ = kNobody;
  if (!waiting_.empty()) guest_is_here_.wake();  // of another who may be asleep
  return guest;
}

void Lobby::run() {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
    }
    strangers_.accept_all(listener_);
    greet_strangers();
    keep_waiting();
    wait();
  }
}

// Who has proved itself waits.
void Lobby::greet_strangers() {
  std::list<Strangers::One> proven = strangers_.greet();
  std::string complaint = strangers_.take_complaint();
  const std::lock_guard lock(mutex_);
  if (!complaint.empty()) complaint_ = std::move(complaint);
  for (Strangers::One& one : proven) {
    if (waiting_.size() >= Strangers::kMost) continue;
    waiting_.push_back({.guest = {std::move(one.connection), std::move(one.frames)}});
    guest_is_here_.wake();
  }
}

// Those whom nobody wants yet are told so, and hear that the server is there.
void Lobby::keep_waiting() {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (wanted_ > 0) return;  // somebody is about to take the first
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    const auto one = next++;
    auto& [connection, frames] = one->guest;
    if (!std::exchange(one->was_told, true)) connection->queue(kStandBy);
    if (now >= one->next_ping) {
      connection->queue(kPing);
      one->next_ping = now + options_.ping_interval();
    }
    auto done = connection->write();
    if (done) done = connection->read(frames);
    std::erase(frames, kPong);
    if (!done || now - connection->last_heard() > options_.silence) waiting_.erase(one);
  }
}

// For whatever can be gone on with; also until the first deadline.
void Lobby::wait() {
  std::vector<pollfd> polled{{wake_up_.descriptor(), POLLIN, 0},
                             {strangers_.is_out_of_descriptors() ? -1 : listener_.get(), POLLIN, 0}};
  const auto add = [&polled](const Visitor& one) {
    const WireConnection& line = *one.guest.connection;
    polled.push_back({line.descriptor(),
                      static_cast<short>(POLLIN | (line.wants_write() ? POLLOUT : 0)), 0});
  };
  strangers_.add_to(polled);
  auto limit = kGlance;
  {
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty()) limit = std::min(limit, options_.ping_interval());
    if (wanted_ == 0) std::ranges::for_each(waiting_, add);
  }
  limit = strangers_.patience(limit);
  ::poll(polled.data(), polled.size(), static_cast<int>(limit.count()));
  if (polled.front().revents != 0) wake_up_.reset();
}

}  // namespace quire
