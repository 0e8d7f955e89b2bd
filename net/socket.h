#pragma once
// A connection to a server that is waited for: TCP, TLS over TCP (names and certificates are
// checked against the system's), or a Unix socket. One thread at a time.

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "net/url.h"

namespace quire::net {

struct Patience {
  std::chrono::milliseconds connect{10'000};
  std::chrono::milliseconds silence{60'000};  // without a byte in either direction
  std::function<bool()> stopped = {};         // asked several times a second; true: give up
};


class Socket {
 public:
  // All throw Failure: unavailable (no such host, refused, reset, a wrong certificate), timeout, or
  // cancelled once `stopped` says so.
  Socket(const Url& url, const Patience& patience);
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  std::size_t read(std::span<char> buffer);  // 0: the end
  void write(std::string_view bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire::net
