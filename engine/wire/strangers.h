#pragma once
// Those who have dialled a listener and have yet to prove the secret: many at a time, each for a
// few seconds at most, so that nobody who says nothing keeps anybody else out. Of one thread.

#include <poll.h>

#include <chrono>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/wire/connection.h"
#include "engine/wire/socket_channel.h"

namespace quire {

class Strangers {
 public:
  static constexpr std::size_t kMost = 64;
  // Whoever opens more pushes out its own oldest: a peer proves itself before so many more come.
  static constexpr std::size_t kMostOfAddress = 16;

  struct One {
    std::unique_ptr<WireConnection> connection;
    std::string address;                  // of a Unix socket none
    std::vector<std::string> frames = {};  // what it has said behind its proof
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  };

  // role: of this side.
  Strangers(WireConnection::Role role, bool is_unix, SocketOptions options);

  // All who wait at the listener; beyond the limits the oldest go. Afterwards the listener may be
  // ready still, for want of descriptors: then it is no use to poll it.
  void accept_all(const Descriptor& listener);
  bool is_out_of_descriptors() const { return is_out_of_descriptors_; }

  // Goes on with all of them, without waiting: those who have proved themselves are strangers no
  // more; who lies, leaves or says nothing for too long is sent away, which is logged.
  std::list<One> greet();
  // Why the last one was sent away since this was last asked; empty: none was.
  std::string take_complaint() { return std::exchange(complaint_, {}); }

  void clear() { all_.clear(); }
  void add_to(std::vector<pollfd>& polled) const;
  // Until the first of them has been here for too long, at most `limit`.
  std::chrono::milliseconds patience(std::chrono::milliseconds limit) const;

 private:
  void make_room(const std::string& address);
  void send_away(const One& one, const std::string& why);

  const WireConnection::Role role_;
  const bool is_unix_;
  const SocketOptions options_;
  std::list<One> all_;  // the longest here first
  std::string complaint_;
  log::Limit lines_{2};  // a second
  bool is_out_of_descriptors_ = false;
};

}  // namespace quire
