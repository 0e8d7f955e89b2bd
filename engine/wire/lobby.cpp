#include "engine/wire/lobby.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/wire/encoding.h"
#include "engine/wire/socket_source.h"

namespace quire {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kOpening{5000};  // to prove the secret
constexpr milliseconds kGlance{500};
constexpr std::size_t kMostStrangers = 64;
// Whoever opens more pushes out its own oldest: an engine proves itself before so many more come.
constexpr std::size_t kMostOfAddress = 16;

std::string address_of(int socket) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  char host[NI_MAXHOST] = {};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&name), &size) != 0) return {};
  const auto* const address = reinterpret_cast<const sockaddr*>(&name);
  if (name.ss_family == AF_UNIX) return {};
  ::getnameinfo(address, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

}  // namespace

Lobby::Lobby(Descriptor listener, const SocketAddress& address, SocketOptions options)
    : listener_(std::move(listener)),
      file_(address),
      is_unix_(address.is_unix()),
      options_(std::move(options)) {
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
    accept_all();
    greet_strangers();
    keep_waiting();
    wait();
  }
}

void Lobby::accept_all() {
  for (std::size_t count = 0; count < kMostStrangers; ++count) {
    auto connection =
        accept_connection(listener_, is_unix_, WireConnection::Role::front_end, options_);
    is_out_of_descriptors_ = connection == nullptr && (errno == EMFILE || errno == ENFILE);
    if (connection == nullptr) return;
    std::string address = address_of(connection->descriptor());
    make_room(address);
    strangers_.push_back({.guest = {std::move(connection)}, .address = std::move(address)});
  }
}

void Lobby::make_room(const std::string& address) {
  const auto is_his = [&](const Visitor& one) {
    return !address.empty() && one.address == address;
  };
  if (std::cmp_greater_equal(std::ranges::count_if(strangers_, is_his), kMostOfAddress)) {
    strangers_.erase(std::ranges::find_if(strangers_, is_his));
  } else if (strangers_.size() >= kMostStrangers) {
    strangers_.pop_front();
  }
}

// A peer that proved itself waits; one that lies, leaves or says nothing for too long is sent away.
void Lobby::greet_strangers() {
  for (auto next = strangers_.begin(); next != strangers_.end();) {
    const auto one = next++;
    auto& [connection, frames] = one->guest;
    auto done = connection->write();
    if (done) done = connection->read(frames);
    if (done && connection->is_open()) {
      const std::lock_guard lock(mutex_);
      if (waiting_.size() < kMostStrangers) {
        waiting_.splice(waiting_.end(), strangers_, one);
        guest_is_here_.wake();
      } else {
        strangers_.erase(one);
      }
      continue;
    }
    const bool is_late = std::chrono::steady_clock::now() - one->since > kOpening;
    if (done && !is_late) continue;
    send_away(*one, done ? "the peer does not answer as an engine would" : done.error().detail);
    strangers_.erase(one);
  }
}

void Lobby::send_away(const Visitor& stranger, const std::string& why) {
  if (lines_.allows())
    log::warn("engine.sent_away",
              {{"address", stranger.address.empty() ? "a Unix socket" : stranger.address},
               {"because", why}});
  const std::lock_guard lock(mutex_);
  complaint_ = why;
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
                             {is_out_of_descriptors_ ? -1 : listener_.get(), POLLIN, 0}};
  const auto add = [&polled](const Visitor& one) {
    const WireConnection& line = *one.guest.connection;
    polled.push_back({line.descriptor(),
                      static_cast<short>(POLLIN | (line.wants_write() ? POLLOUT : 0)), 0});
  };
  std::ranges::for_each(strangers_, add);
  auto limit = kGlance;
  {
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty()) limit = std::min(limit, options_.ping_interval());
    if (wanted_ == 0) std::ranges::for_each(waiting_, add);
  }
  if (!strangers_.empty()) {
    const auto left = strangers_.front().since + kOpening - std::chrono::steady_clock::now();
    limit = std::clamp(std::chrono::ceil<milliseconds>(left), milliseconds(1), limit);
  }
  ::poll(polled.data(), polled.size(), static_cast<int>(limit.count()));
  if (polled.front().revents != 0) wake_up_.reset();
}

}  // namespace quire
