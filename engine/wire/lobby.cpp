#include "engine/wire/lobby.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/wire/socket_source.h"

namespace quire {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kOpening{5000};  // to prove the secret
constexpr milliseconds kTurn{50};       // while another thread attends
constexpr std::size_t kMostStrangers = 64;
// Whoever opens more pushes out his own oldest: an engine proves itself before so many more come.
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

Result<Lobby::Guest> Lobby::next(int waker, milliseconds limit) {
  const std::unique_lock attending(attending_, std::try_to_lock);
  if (!attending.owns_lock()) {
    pollfd woken{waker, POLLIN, 0};
    ::poll(&woken, 1, static_cast<int>(kTurn.count()));
    return Error{ErrorCode::unavailable, kNobody, {}};
  }
  const auto end = std::chrono::steady_clock::now() + limit;
  while (true) {
    accept_all();
    for (auto one = strangers_.begin(); one != strangers_.end();) {
      const auto here = one++;
      if (!is_proved(here)) continue;
      Guest guest = std::move(here->guest);
      strangers_.erase(here);
      complaint_ = kNobody;
      return guest;
    }
    const auto left = std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
    if (left <= milliseconds(0) || wait(waker, left) == waker) break;
  }
  return Error{ErrorCode::unavailable, complaint_, {}};
}

void Lobby::accept_all() {
  for (std::size_t count = 0; count < kMostStrangers; ++count) {
    auto connection =
        accept_connection(listener_, is_unix_, WireConnection::Role::front_end, options_);
    if (connection == nullptr) return;
    std::string address = address_of(connection->descriptor());
    make_room(address);
    strangers_.push_back({{std::move(connection)}, std::move(address)});
  }
}

void Lobby::make_room(const std::string& address) {
  const auto is_his = [&](const Stranger& one) { return !address.empty() && one.address == address; };
  if (std::cmp_greater_equal(std::ranges::count_if(strangers_, is_his), kMostOfAddress)) {
    strangers_.erase(std::ranges::find_if(strangers_, is_his));
  } else if (strangers_.size() >= kMostStrangers) {
    strangers_.pop_front();
  }
}

// One that lies, leaves or says nothing for too long is sent away.
bool Lobby::is_proved(Strangers::iterator stranger) {
  auto& [connection, frames] = stranger->guest;
  auto done = connection->write();
  if (done) done = connection->read(frames);
  if (done && connection->is_open()) return true;
  const bool is_late = std::chrono::steady_clock::now() - stranger->since > kOpening;
  if (done && !is_late) return false;
  complaint_ = done ? "the peer does not answer as an engine would" : done.error().detail;
  strangers_.erase(stranger);
  return false;
}

// What can be gone on with: the waker, or anything else (−1). Wakes for the first deadline, too.
int Lobby::wait(int waker, milliseconds limit) {
  std::vector<pollfd> polled{{waker, POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  for (const Stranger& one : strangers_) {
    const WireConnection& line = *one.guest.connection;
    polled.push_back({line.descriptor(),
                      static_cast<short>(POLLIN | (line.wants_write() ? POLLOUT : 0)), 0});
  }
  if (!strangers_.empty()) {
    const auto left = strangers_.front().since + kOpening - std::chrono::steady_clock::now();
    limit = std::clamp(std::chrono::ceil<milliseconds>(left), milliseconds(1), limit);
  }
  ::poll(polled.data(), polled.size(), static_cast<int>(limit.count()));
  return polled.front().revents != 0 ? waker : -1;
}

}  // namespace quire
