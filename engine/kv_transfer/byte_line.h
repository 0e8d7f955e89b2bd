#pragma once
// Bytes over one TCP connection, for protocols that are not ours. Every wait has an end. Belongs to
// the transfer's thread.

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/async.h"
#include "engine/kv_transfer/data_plane.h"
#include "engine/wire/socket_address.h"

namespace quire {

class ByteLine {
 public:
  // `silence`: the longest that the other end may let pass without a byte.
  ByteLine(asio::any_io_executor executor, Descriptor socket, std::chrono::nanoseconds silence);
  ~ByteLine();
  ByteLine(const ByteLine&) = delete;
  ByteLine& operator=(const ByteLine&) = delete;

  // All throw KvLost: peer_lost.
  awaitable<void> connected();  // of a socket that begin_connect() made
  awaitable<void> read(std::span<std::byte> into);
  // Takes memory as the bytes come, not as they are promised.
  awaitable<std::string> read_text(std::size_t bytes);
  // False: `patience` ended without a byte. The other end may also close the line: throws.
  awaitable<bool> has_come(std::chrono::nanoseconds patience);
  awaitable<std::string> read_to_end(std::size_t most);
  awaitable<std::string> read_until(std::string_view end, std::size_t most);  // with it
  awaitable<void> write(std::span<const std::byte> bytes);
  awaitable<void> write(const std::string& bytes);
  // What follows, until this is called again, has so long in all.
  void allow(std::chrono::nanoseconds time) { end_ = std::chrono::steady_clock::now() + time; }
  awaitable<void> let_others();  // between long pieces of work
  asio::any_io_executor executor() const;
  void end_writing();
  void hang_up();  // whatever waits for the line ends with peer_lost

 private:
  struct Socket;
  const std::unique_ptr<Socket> socket_;
  awaitable<bool> wait(bool to_write);  // false: too long
  awaitable<void> readable();

  const std::chrono::nanoseconds silence_;
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::time_point::max();
};

// A socket that connects; a name is waited for without holding the thread up. Throws KvLost.
awaitable<Descriptor> begin_line(SocketAddress address, std::chrono::nanoseconds silence);

// Throws KvLost.
awaitable<std::unique_ptr<ByteLine>> connect_line(asio::any_io_executor executor,
                                                  SocketAddress address,
                                                  std::chrono::nanoseconds silence);

}  // namespace quire
