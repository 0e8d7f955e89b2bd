#pragma once
// Where an engine in another process is reached, and the sockets that lead there. All of them are
// non-blocking and not inherited by child processes.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace quire {

// "unix:/run/engine.sock", "tcp://host:port" or "host:port"; "[::1]:port" for IPv6.
struct SocketAddress {
  std::string path;  // of a Unix socket; empty: TCP
  std::string host;
  std::uint16_t port = 0;

  bool is_unix() const { return !path.empty(); }
  bool is_loopback() const;
  std::string text() const;
};

Result<SocketAddress> parse_socket_address(std::string_view text);

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    reset(std::exchange(other.fd_, -1));
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1);
  int release() { return std::exchange(fd_, -1); }  // to another owner

 private:
  int fd_ = -1;
};

// Connecting may still be under way: the socket becomes writable when it has ended, and
// connect_error() says how. Of a name with several addresses each attempt takes the next one. Error
// overloaded: after so long the name is still being looked up; to be tried again.
Result<Descriptor> begin_connect(const SocketAddress& address,
                                 std::chrono::milliseconds patience = std::chrono::milliseconds(20));
std::string connect_error(int socket);  // empty: none

// A stale Unix socket without a listener is replaced; anything else at its path is left alone.
Result<Descriptor> listen_at(const SocketAddress& address);
Descriptor accept_from(const Descriptor& listener);  // empty: nobody waits
std::uint16_t port_of(const Descriptor& listener);

}  // namespace quire
