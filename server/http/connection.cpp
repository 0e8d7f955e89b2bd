#include "server/http/connection.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace quire {

namespace {

// Small for thousands of idle connections, larger while one uploads.
constexpr std::size_t kSmallestRead = 4 * 1024;
constexpr std::size_t kLargestRead = 64 * 1024;
// After a refusal: how much of what the client still sends is read and thrown away, and how long.
constexpr std::size_t kLingerBytes = 1024 * 1024;
constexpr std::chrono::milliseconds kLingerTime{1000};
constexpr std::chrono::milliseconds kLookForPeer{100};

}  // namespace

Connection::Connection(asio::any_io_executor strand, std::unique_ptr<ByteStream> stream,
                       const HttpLimits& limits)
    : limits_(limits),
      stream_(std::move(stream)),
      read_size_(kSmallestRead),
      timer_(strand, Clock::time_point::max()) {}

awaitable<void> Connection::watch() {
  while (true) {
    timer_.expires_at(std::min(deadline_, next_look_));
    boost::system::error_code moved;
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, moved));
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return;
    look_for_peer();
    if (Clock::now() < deadline_) continue;
    timed_out_ = true;
    clear_deadline();
    stream_->break_off();
  }
}

// A later time does not touch the timer: watch() finds it when it wakes for the earlier one.
void Connection::wake_by(Clock::time_point time) {
  if (time < timer_.expiry()) timer_.cancel();
}

void Connection::set_deadline(std::chrono::milliseconds from_now) {
  deadline_ = Clock::now() + from_now;
  wake_by(deadline_);
}

// Not read for: a read that waits beside every request costs more than to ask now and then.
void Connection::on_leaving(std::function<void()> call) {
  on_leaving_ = std::move(call);
  next_look_ = on_leaving_ ? Clock::now() + kLookForPeer : Clock::time_point::max();
  wake_by(next_look_);
}

void Connection::look_for_peer() {
  const auto now = Clock::now();
  if (now < next_look_) return;
  next_look_ = now + kLookForPeer;
  if (!peer_has_left()) return;
  next_look_ = Clock::time_point::max();
  stream_->break_off();
  if (const auto call = std::exchange(on_leaving_, {})) call();
}

void Connection::clear_deadline() { deadline_ = Clock::time_point::max(); }

awaitable<bool> Connection::handshake() { co_return co_await stream_->handshake(); }

void Connection::consume(std::size_t bytes) {
  consumed_ += bytes;
  if (consumed_ < input_.size()) return;
  input_.clear();
  consumed_ = 0;
}

awaitable<bool> Connection::fill() {
  if (timed_out_) co_return false;
  input_.erase(0, std::exchange(consumed_, 0));
  const std::size_t old_size = input_.size();
  input_.resize(old_size + read_size_);
  std::size_t received = 0;
  try {
    received = co_await stream_->read_some(std::span(input_).subspan(old_size));
  } catch (...) {
    input_.resize(old_size);
    throw;
  }
  input_.resize(old_size + received);
  if (received == read_size_) read_size_ = std::min(2 * read_size_, kLargestRead);
  co_return received > 0;
}

awaitable<bool> Connection::write(std::string_view bytes) {
  timed_out_ = false;  // what was too slow may still be told so
  bytes.remove_prefix(stream_->write_now(bytes));
  if (bytes.empty()) co_return true;
  const auto earlier = deadline_;
  set_deadline(limits_.write_timeout);
  const bool ok = co_await stream_->write(bytes);
  deadline_ = earlier;
  co_return ok;
}

awaitable<void> Connection::close() {
  timed_out_ = false;
  set_deadline(kLingerTime);
  co_await stream_->shut_down();
  for (std::size_t thrown_away = 0; thrown_away < kLingerBytes;) {
    consume(input().size());
    if (!co_await fill()) break;
    thrown_away += input().size();
  }
}

}  // namespace quire
