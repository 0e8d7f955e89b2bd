#pragma once
// A connection between a DEALER and a ROUTER: messages of one frame. Signs of life are asked for
// where one waits, so that a dead peer is noticed. Belongs to the transfer's thread.

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/async.h"
#include "engine/kv_transfer/mooncake/byte_line.h"

namespace quire {

class MooncakeLink {
 public:
  explicit MooncakeLink(std::unique_ptr<ByteLine> line);

  // All throw KvLost. `own` is DEALER or ROUTER, the other end must be the other.
  awaitable<void> greet(std::string_view own);
  awaitable<void> send(std::string body);  // one at a time, the others wait
  // The next message. Where the other end is silent for longer than `alive`, it is asked for a sign
  // of life and lost without one; at `until`, with all its signs of life, it has expired.
  awaitable<std::string> receive(
      std::chrono::nanoseconds alive,
      std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max());
  // Of who listens to it: whether anybody still does.
  bool is_open() const { return is_open_; }
  void has_ended() { is_open_ = false; }
  void hang_up() { line_->hang_up(); }

 private:
  awaitable<std::optional<std::string>> read_frame();  // empty: it was a command
  awaitable<void> write(std::string bytes);

  const std::unique_ptr<ByteLine> line_;
  asio::steady_timer written_;  // cancelled when another may write
  bool is_writing_ = false, is_open_ = true;
};

}  // namespace quire
