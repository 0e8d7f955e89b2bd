#include "engine/kv_transfer/mooncake/link.h"

#include <algorithm>
#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "engine/kv_mooncake/zmtp.h"
#include "engine/kv_transfer/plane/timer_wait.h"

namespace quire {
namespace {

template <class T>
T value_or_lose(Result<T> result) {
  if (!result) throw KvLost(KvLossReason::corrupt, result.error().detail);
  return std::move(*result);
}

}  // namespace

MooncakeLink::MooncakeLink(std::unique_ptr<ByteLine> line)
    : line_(std::move(line)),
      written_(line_->executor(), std::chrono::steady_clock::time_point::max()) {}

awaitable<void> MooncakeLink::greet(std::string_view own) {
  const std::string greeting = zmtp_greeting();
  co_await line_->write(greeting);
  const std::string theirs = co_await line_->read_text(kZmtpGreetingBytes);
  if (const auto checked = check_zmtp_greeting(theirs); !checked)
    throw KvLost(KvLossReason::corrupt, checked.error().detail);
  const std::string ready = zmtp_ready(own);
  co_await line_->write(ready);
  std::array<std::byte, 2> head{};  // a short command
  co_await line_->read(head);
  const ZmtpFlags flags = value_or_lose(parse_zmtp_flags(head[0]));
  if (!flags.is_command || flags.is_long)
    throw KvLost(KvLossReason::corrupt, "ZeroMQ: READY was to come");
  const std::string body = co_await line_->read_text(static_cast<std::size_t>(head[1]));
  const std::string type = zmtp_socket_type(body);
  if (type != (own == "ROUTER" ? "DEALER" : "ROUTER"))
    throw KvLost(KvLossReason::corrupt, "ZeroMQ: the other end is \"" + type + "\"");
}

awaitable<void> MooncakeLink::write(std::string bytes) {
  while (is_writing_) co_await until_woken(written_);
  struct Turn {
    MooncakeLink& link;
    explicit Turn(MooncakeLink& l) : link(l) { link.is_writing_ = true; }
    ~Turn() {
      link.is_writing_ = false;
      link.written_.cancel();
    }
  } const turn(*this);
  co_await line_->write(bytes);
}

awaitable<void> MooncakeLink::send(std::string body) {
  std::string bytes = zmtp_message(body);
  co_await write(std::move(bytes));
}

awaitable<std::optional<std::string>> MooncakeLink::read_frame() {
  std::array<std::byte, 1> first{};
  co_await line_->read(first);
  const ZmtpFlags flags = value_or_lose(parse_zmtp_flags(first[0]));
  if (flags.more) throw KvLost(KvLossReason::corrupt, "ZeroMQ: a message has several frames");
  std::array<std::byte, 8> bytes{};
  const auto size_bytes = std::span(bytes).first(flags.is_long ? 8 : 1);
  co_await line_->read(size_bytes);
  const std::uint64_t size = value_or_lose(parse_zmtp_size(size_bytes));
  std::string body = co_await line_->read_text(size);
  if (!flags.is_command) co_return std::move(body);
  const ZmtpCommand command = command_of(body);
  if (command == ZmtpCommand::error)
    throw KvLost(KvLossReason::refused, "ZeroMQ: the other end says ERROR");
  if (command == ZmtpCommand::ping) {
    std::string pong = zmtp_pong(body);
    co_await write(std::move(pong));
  }
  co_return std::nullopt;
}

awaitable<std::string> MooncakeLink::receive(std::chrono::nanoseconds alive,
                                             std::chrono::steady_clock::time_point until) {
  bool was_asked = false;
  while (true) {
    const std::chrono::nanoseconds left = until - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds(0))
      throw KvLost(KvLossReason::expired, "it lives and has not answered in its time");
    if (!co_await line_->has_come(std::min(alive, left))) {
      if (left < alive) continue;
      if (was_asked) throw KvLost(KvLossReason::peer_lost, "gives no sign of life", true);
      std::string ping = zmtp_ping();
      co_await write(std::move(ping));
      was_asked = true;
      continue;
    }
    was_asked = false;
    if (auto message = co_await read_frame()) co_return std::move(*message);
  }
}

}  // namespace quire
