#pragma once
// One request under way at a server, seen from the thread that waits for it: has its client left,
// and is there still somebody behind a silence? A server that is stopped or has lost its host keeps
// its connections, and a long prompt is silent too.

#include <chrono>

#include "net/socket.h"
#include "net/url.h"
#include "proxy/connection.h"

namespace quire::proxy {

// Whatever it says to /health within two seconds, it lives.
bool is_alive(const net::Url& server, const Connection& client);

class Watch {
 public:
  // Both outlive it.
  Watch(const Connection& client, const net::Url& server) : client_(client), server_(server) {}

  net::Patience patience();  // for the request; asks this
  void heard();              // something came
  bool is_server_dead() const { return dead_; }

 private:
  using Clock = std::chrono::steady_clock;
  bool must_stop();

  const Connection& client_;
  const net::Url& server_;
  Clock::time_point next_question_ = Clock::now() + kPatience;
  int unanswered_ = 0;
  bool dead_ = false;

  static constexpr std::chrono::seconds kPatience{5};
};

}  // namespace quire::proxy
