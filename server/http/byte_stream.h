#pragma once
// Bytes to and from one client: TCP, a Unix socket, or TLS over TCP. Lives on one strand; one read
// and one write may be under way at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/async.h"

namespace quire {

class ByteStream {
 public:
  virtual ~ByteStream() = default;

  virtual awaitable<bool> handshake() = 0;  // TLS; at once true without
  // 0: the end, a reset or a break(); or the coroutine is cancelled, and its next co_await throws:
  // an exception here would be one for every request, whose watch for its client ends this way.
  virtual awaitable<std::size_t> read_some(std::span<char> buffer) = 0;
  // Writes as many bytes as go without waiting; what is left, errors too, is for write().
  virtual std::size_t write_now(std::string_view bytes) = 0;
  virtual awaitable<bool> write(std::string_view bytes) = 0;
  virtual awaitable<void> shut_down() = 0;  // says goodbye; reading may go on
  virtual std::uint64_t peer() = 0;         // who it is: the same for connections of one address
  virtual bool peer_has_left() = 0;         // has closed or vanished, however much is still unread
  virtual void break_off() = 0;             // ends the read and the write that are under way
};

}  // namespace quire
