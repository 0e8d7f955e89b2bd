#pragma once
// One connection between a front end and an engine, from its first byte: both sides prove that they
// know the same secret, then frames go both ways. Non-blocking and of one thread: the owner polls
// the descriptor and calls read() and write().
//
// Opening: each side sends 16 bytes that name the protocol and its role, and a nonce of 32 bytes;
// then HMAC-SHA256(secret, sender's role, front end's nonce, engine's nonce). Nothing else is read
// before the peer's proof holds, so a stranger costs 80 bytes of memory. The secret keeps strangers
// out; what encrypts is TLS (engine/wire/tls.h), around all of it, whose keys the proof covers.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/wire/encoding.h"
#include "engine/wire/socket_address.h"
#include "engine/wire/tls.h"

namespace quire {

class WireConnection {
 public:
  enum class Role : std::uint8_t { front_end, engine };  // of this side

  // tls: over the same socket; null: none.
  WireConnection(Descriptor socket, Role role, std::string secret,
             std::unique_ptr<TlsStream> tls = nullptr);

  int descriptor() const { return socket_.get(); }
  bool is_open() const { return is_open_; }
  // The moment at which is_open() became true: times on this connection count from here.
  std::chrono::steady_clock::time_point opened_at() const { return opened_at_; }
  // Of the last byte from the peer, or of the beginning.
  std::chrono::steady_clock::time_point last_heard() const { return last_heard_; }

  // Takes what has arrived and appends whole frames. Error: the peer is none of ours, sent what no
  // peer sends, or has left; the connection is of no further use.
  Result<void> read(std::vector<std::string>& frames);
  // Sends what waits, as much as the socket takes.
  Result<void> write();

  // Once open.
  void queue(std::string_view message) { append_frame(out_, message); }
  std::size_t queued_bytes() const { return out_.size() - written_; }
  // Whether write() could do more once the socket takes bytes.
  bool wants_write() const;

 private:
  struct Received {
    std::size_t size = 0;
    bool none_left = false;
  };
  Result<Received> receive(char* bytes, std::size_t size);
  Result<std::size_t> send_some();  // 0: not now
  Result<void> open(std::string_view& bytes);
  Result<void> take_preamble();
  Result<void> take_proof();
  std::string proof(Role role) const;

  Descriptor socket_;
  std::unique_ptr<TlsStream> tls_;  // before the socket closes
  const Role role_;
  const std::string secret_;
  const std::string nonce_;
  std::string peer_nonce_;
  std::string opening_;  // of the peer, until it is whole
  bool is_open_ = false;
  std::chrono::steady_clock::time_point opened_at_{};
  std::chrono::steady_clock::time_point last_heard_ = std::chrono::steady_clock::now();
  FrameReader frames_;
  std::string out_;
  std::size_t written_ = 0;  // of out_
};

}  // namespace quire
