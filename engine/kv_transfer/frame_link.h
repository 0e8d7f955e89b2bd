#pragma once
// Frames over one socket. Every wait has an end: a peer that is silent in the middle of something,
// or sends drop by drop, is lost. Belongs to the transfer's thread.

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "base/async.h"
#include "engine/kv_transfer/frames.h"
#include "engine/wire/socket_address.h"

namespace quire {

// A fetch, or a peer's part in one, came to nothing.
class KvLost : public std::runtime_error {
 public:
  KvLost(KvLossReason reason, const std::string& detail, bool silent = false)
      : std::runtime_error(detail), reason_(reason), silent_(silent) {}
  KvLossReason reason() const { return reason_; }
  bool is_silence() const { return silent_; }  // it was waited for in vain

 private:
  KvLossReason reason_;
  bool silent_;
};

class FrameLink {
 public:
  // `silence`: the longest that the other end may let pass without a byte; for the whole of a frame
  // it has five times that.
  FrameLink(asio::any_io_executor executor, Descriptor socket, std::chrono::nanoseconds silence);
  ~FrameLink();
  FrameLink(const FrameLink&) = delete;
  FrameLink& operator=(const FrameLink&) = delete;

  awaitable<void> connected();  // of a socket that begin_connect() made
  // Between two exchanges: the other end is there, as far as anyone knows, and has said nothing.
  bool is_quiet() const;
  void hang_up();  // what waits for the line ends with peer_lost

  // All throw KvLost: peer_lost where the line is gone or silent, corrupt for what is not a frame.
  // A header may be waited for longer, `patience`, as long as none of it is there.
  awaitable<KvFrameHeader> read_header(std::chrono::nanoseconds patience);
  awaitable<std::string> read_message(const KvFrameHeader& header);  // intact
  awaitable<void> read_piece(const KvFrameHeader& header, std::span<std::byte> into);
  awaitable<void> send(KvFrameType type, std::uint64_t stream, const std::string& message);
  awaitable<void> send_piece(std::uint64_t stream, std::uint64_t sequence,
                             std::span<const std::byte> bytes);

 private:
  struct Socket;
  using Clock = std::chrono::steady_clock;
  Clock::time_point frame_end() const;
  awaitable<void> read_exactly(std::span<std::byte> into, Clock::time_point end);
  awaitable<void> write_all(const KvFrameHeader& header, std::span<const std::byte> body);

  const std::unique_ptr<Socket> socket_;
  const std::chrono::nanoseconds silence_;
};

}  // namespace quire
