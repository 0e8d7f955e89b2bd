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
#include "engine/kv_transfer/content/frames.h"
#include "engine/kv_transfer/plane/data_plane.h"
#include "engine/wire/socket_address.h"

namespace quire {

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
  awaitable<void> readable();  // something has come, or the line's end
  void hang_up();              // what waits for the line ends with peer_lost

  // All throw KvLost: peer_lost where the line is gone or silent, corrupt for what is not a frame.
  // A header may be waited for longer, `patience`, as long as none of it is there.
  awaitable<KvFrameHeader> read_header(std::chrono::nanoseconds patience);
  awaitable<std::string> read_message(const KvFrameHeader& header);  // intact
  awaitable<void> read_piece(const KvFrameHeader& header, std::span<std::byte> into);
  // A descriptor goes along over a Unix socket; negative: none.
  awaitable<void> send(KvFrameType type, std::uint64_t stream, const std::string& message,
                       int descriptor = -1);
  // The latest that came along; empty: none did.
  Descriptor take_descriptor() { return std::move(descriptor_); }
  awaitable<void> let_others();  // between long pieces of work
  // Only where it lies in memory that both have, and its sum.
  awaitable<void> send_placed(std::uint64_t stream, std::uint64_t sequence, std::int64_t offset,
                              std::span<const std::byte> bytes);
  // The same from the other end: copied out of `memory`, checked where it has arrived.
  awaitable<void> read_placed(const KvFrameHeader& header, std::span<const std::byte> memory,
                              std::span<std::byte> into);
  awaitable<void> send_piece(std::uint64_t stream, std::uint64_t sequence,
                             std::span<const std::byte> bytes);

 private:
  struct Socket;
  using Clock = std::chrono::steady_clock;
  Clock::time_point frame_end() const;
  awaitable<void> read_exactly(std::span<std::byte> into, Clock::time_point end);
  awaitable<void> write_all(const KvFrameHeader& header, std::span<const std::byte> body,
                            int descriptor = -1);
  ssize_t receive(std::span<std::byte> into);

  const std::unique_ptr<Socket> socket_;
  const std::chrono::nanoseconds silence_;
  Descriptor descriptor_;
  int num_unwaited_ = 0;
};

}  // namespace quire
