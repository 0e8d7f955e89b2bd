#include "engine/wire/strangers.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "engine/wire/socket_source.h"

namespace quire {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kOpening{5000};  // to prove the secret

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

Strangers::Strangers(WireConnection::Role role, bool is_unix, SocketOptions options)
    : role_(role), is_unix_(is_unix), options_(std::move(options)) {}

void Strangers::accept_all(const Descriptor& listener) {
  for (std::size_t count = 0; count < kMost; ++count) {
    auto connection = accept_connection(listener, is_unix_, role_, options_);
    is_out_of_descriptors_ = connection == nullptr && (errno == EMFILE || errno == ENFILE);
    if (connection == nullptr) return;
    std::string address = address_of(connection->descriptor());
    make_room(address);
    all_.push_back({.connection = std::move(connection), .address = std::move(address)});
  }
}

void Strangers::make_room(const std::string& address) {
  const auto is_of_it = [&](const One& one) { return !address.empty() && one.address == address; };
  if (std::cmp_greater_equal(std::ranges::count_if(all_, is_of_it), kMostOfAddress)) {
    all_.erase(std::ranges::find_if(all_, is_of_it));
  } else if (all_.size() >= kMost) {
    all_.pop_front();
  }
}

std::list<Strangers::One> Strangers::greet() {
  std::list<One> proven;
  for (auto next = all_.begin(); next != all_.end();) {
    const auto one = next++;
    // First, so that a peer that is refused for what it says can say of whom.
    auto done = one->connection->write();
    if (done) done = one->connection->read(one->frames);
    if (done && one->connection->is_open()) {
      proven.splice(proven.end(), all_, one);
      continue;
    }
    const bool is_late = std::chrono::steady_clock::now() - one->since > kOpening;
    if (done && !is_late) continue;
    const bool is_engine = role_ == WireConnection::Role::engine;
    const std::string peer = is_engine ? "a front end" : "an engine";
    send_away(*one, done ? "the peer does not answer as " + peer + " would" : done.error().detail);
    all_.erase(one);
  }
  return proven;
}

void Strangers::send_away(const One& one, const std::string& why) {
  complaint_ = why;
  if (!lines_.allows()) return;
  log::warn(role_ == WireConnection::Role::engine ? "engine.front_end_gone" : "engine.sent_away",
            {{"address", one.address.empty() ? "a Unix socket" : one.address}, {"because", why}});
}

void Strangers::add_to(std::vector<pollfd>& polled) const {
  for (const One& one : all_) {
    const short events = one.connection->wants_write() ? POLLIN | POLLOUT : POLLIN;
    polled.push_back({one.connection->descriptor(), events, 0});
  }
}

milliseconds Strangers::patience(milliseconds limit) const {
  if (all_.empty()) return limit;
  const auto left = all_.front().since + kOpening - std::chrono::steady_clock::now();
  return std::clamp(std::chrono::ceil<milliseconds>(left), milliseconds(1), limit);
}

}  // namespace quire
