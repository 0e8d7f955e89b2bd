#include "server/http/sse.h"

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "server/http/connection.h"

namespace quire {

namespace {

// Room for a chunk's size, filled in when the chunk is closed. Leading zeros are allowed.
constexpr std::string_view kChunkHead = "00000000\r\n";

}  // namespace

struct SseWriter::Wakeup {
  explicit Wakeup(asio::any_io_executor strand)
      : timer(std::move(strand), asio::steady_timer::time_point::max()) {}
  asio::steady_timer timer;
};

SseWriter::SseWriter(Connection& connection, std::string head, bool chunked,
                     std::function<void()> before_end)
    : connection_(connection),
      chunked_(chunked),
      before_end_(std::move(before_end)),
      gathered_(std::move(head)) {
  open_chunk();
}

SseWriter::SseWriter(SseWriter&&) noexcept = default;
SseWriter::~SseWriter() = default;

std::string& SseWriter::begin_event() { return gathered_.append("data: "); }
std::string& SseWriter::begin_event(std::string_view name) {
  return gathered_.append("event: ").append(name).append("\ndata: ");
}
void SseWriter::end_event() { gathered_ += "\n\n"; }

void SseWriter::event(std::string_view json) {
  begin_event() += json;
  end_event();
}

void SseWriter::open_chunk() {
  chunk_start_ = gathered_.size();
  if (chunked_) gathered_ += kChunkHead;
}

void SseWriter::close_chunk(bool last) {
  if (!chunked_) return;
  constexpr std::string_view kHex = "0123456789abcdef";
  auto size = gathered_.size() - chunk_start_ - kChunkHead.size();
  if (size == 0 && last) {  // an empty chunk is the end itself
    gathered_.replace(chunk_start_, std::string::npos, "0\r\n\r\n");
    return;
  }
  for (int digit = 7; digit >= 0; --digit, size >>= 4) {
    gathered_[chunk_start_ + digit] = kHex[size & 15];
  }
  gathered_ += last ? "\r\n0\r\n\r\n" : "\r\n";
}

// A chunk of nothing would be the body's end.
bool SseWriter::has_nothing() const {
  return gathered_.size() == chunk_start_ + (chunked_ ? kChunkHead.size() : 0);
}

awaitable<bool> SseWriter::write_gathered() {
  if (broken_) co_return false;
  const std::uint64_t covers = num_gathered_;
  const bool last = ended_;
  if (!last && has_nothing()) {
    num_sent_ = covers;
    co_return true;
  }
  close_chunk(last);
  std::swap(gathered_, sending_);
  gathered_.clear();
  open_chunk();
  writing_ = true;
  try {
    broken_ = !co_await connection_.write(sending_);
  } catch (...) {
    broken_ = true;
    throw;
  }
  writing_ = false;
  num_sent_ = covers;
  complete_ = last && !broken_;
  if (wakeup_) wakeup_->timer.cancel();
  co_return !broken_;
}

// Not a coroutine: nearly always there is one write to wait for, and no frame beside its own.
awaitable<bool> SseWriter::flush() {
  const std::uint64_t mine = ++num_gathered_;
  return writing_ ? flush_after_others(mine) : write_gathered();
}

awaitable<bool> SseWriter::flush_after_others(std::uint64_t mine) {
  while (num_sent_ < mine && !broken_) {
    if (!writing_) {
      co_await write_gathered();
      continue;
    }
    if (!wakeup_) wakeup_ = std::make_unique<Wakeup>(co_await asio::this_coro::executor);
    boost::system::error_code woken;
    co_await wakeup_->timer.async_wait(asio::redirect_error(asio::use_awaitable, woken));
  }
  co_return !broken_;
}

awaitable<bool> SseWriter::done() {
  event("[DONE]");
  co_return co_await end();
}

awaitable<bool> SseWriter::end() {
  ended_ = true;
  if (before_end_) before_end_();
  co_return co_await flush();
}

}  // namespace quire
