#pragma once
// Where those wait who have dialled a listener, until they have proved the secret: many at a time,
// so that nobody who is silent keeps an engine out. Any thread; one serves all who wait in it.

#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/wire/connection.h"
#include "engine/wire/socket_channel.h"

namespace quire {

class Lobby {
 public:
  // Somebody who has proved the secret, and what he has sent since.
  struct Guest {
    std::unique_ptr<WireConnection> connection;
    std::vector<std::string> frames{};
  };

  Lobby(Descriptor listener, bool is_unix, SocketOptions options)
      : listener_(std::move(listener)), is_unix_(is_unix), options_(std::move(options)) {}

  // The next one, or why nobody has come; waits for so long at most, and no longer than until
  // `waker` can be read.
  Result<Guest> next(int waker, std::chrono::milliseconds limit);

 private:
  struct Stranger {
    Guest guest;
    std::string address;  // of a Unix socket none
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  };
  using Strangers = std::list<Stranger>;
  static constexpr const char* kNobody = "no engine has dialled yet";

  void accept_all();
  void make_room(const std::string& address);
  bool is_proved(Strangers::iterator stranger);
  int wait(int waker, std::chrono::milliseconds limit);

  const Descriptor listener_;
  const bool is_unix_;
  const SocketOptions options_;

  std::mutex attending_;  // held by the thread that serves; what follows is its own
  Strangers strangers_;   // the longest here first
  std::string complaint_ = kNobody;  // about the last one who was turned away
};

}  // namespace quire
