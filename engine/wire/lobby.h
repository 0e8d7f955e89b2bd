#pragma once
// Where those wait who have dialled a listener: until they have proved the secret, many at a time,
// so that nobody who is silent keeps an engine out, and then until an engine is wanted. Any thread;
// one of its own serves them.

#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/wire/connection.h"
#include "engine/wire/socket_channel.h"
#include "engine/wire/socket_file.h"
#include "engine/wire/strangers.h"
#include "engine/wire/wake_up.h"

namespace quire {

class Lobby {
 public:
  // A peer that has proved the secret, and what it has sent since.
  struct Guest {
    std::unique_ptr<WireConnection> connection;
    std::vector<std::string> frames{};
  };

  Lobby(Descriptor listener, const SocketAddress& address, SocketOptions options);
  ~Lobby();
  Lobby(const Lobby&) = delete;
  Lobby& operator=(const Lobby&) = delete;

  // The next one, or why nobody has come; waits for so long at most, and no longer than until
  // `waker` can be read.
  Result<Guest> next(int waker, std::chrono::milliseconds limit);

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Visitor {
    Guest guest;
    Time next_ping = {};  // of one who stands by
    bool was_told = false;
  };
  using Visitors = std::list<Visitor>;
  static constexpr const char* kNobody = "no engine has dialled yet";

  void run();
  void greet_strangers();
  void keep_waiting();
  void wait();

  const Descriptor listener_;
  const SocketFile file_;
  const SocketOptions options_;
  const WakeUp wake_up_;        // of the thread
  const WakeUp guest_is_here_;  // of those who want one

  Strangers strangers_;  // the thread's own

  std::mutex mutex_;                 // what follows
  Visitors waiting_;                 // have proved themselves; the longest here first
  int wanted_ = 0;                   // by how many who wait in next()
  std::string complaint_ = kNobody;  // about the last one who was turned away
  bool closed_ = false;

  std::thread thread_;  // last: it uses what is above
};

}  // namespace quire
