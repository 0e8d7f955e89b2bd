#pragma once
// One client's connection: input that is not consumed yet, output, and the deadline of whatever it
// waits for. Lives on the connection's strand.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/config.h"
#include "server/http/byte_stream.h"

namespace quire {

class Connection {
 public:
  Connection(asio::any_io_executor strand, std::unique_ptr<ByteStream> stream,
             const HttpLimits& limits);

  const HttpLimits& limits() const { return limits_; }

  // Runs beside the session; breaks off reads and writes when the deadline has passed.
  awaitable<void> watch();
  void set_deadline(std::chrono::milliseconds from_now);
  void clear_deadline();
  bool timed_out() const { return timed_out_; }

  awaitable<bool> handshake();
  std::string_view input() const { return std::string_view(input_).substr(consumed_); }
  void consume(std::size_t bytes);
  awaitable<bool> fill();  // more input; false: the end, or the deadline
  std::uint64_t peer() { return stream_->peer(); }
  bool peer_has_left() { return stream_->peer_has_left(); }  // without reading
  // Until it is called with {}: when the client has left, which is looked for ten times a second,
  // ends the write that is under way and calls this, once.
  void on_leaving(std::function<void()> call);
  awaitable<bool> write(std::string_view bytes);
  // Says goodbye so that the client sees the last reply even if it is still sending.
  awaitable<void> close();

 private:
  HttpLimits limits_;
  std::unique_ptr<ByteStream> stream_;
  std::string input_;
  std::size_t consumed_ = 0;
  std::size_t read_size_;

  using Clock = std::chrono::steady_clock;
  asio::steady_timer timer_;
  void wake_by(Clock::time_point time);
  void look_for_peer();
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point next_look_ = Clock::time_point::max();
  std::function<void()> on_leaving_;
  bool timed_out_ = false;
};

}  // namespace quire
