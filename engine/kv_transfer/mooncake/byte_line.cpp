#include "engine/kv_transfer/mooncake/byte_line.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <utility>

#include "engine/kv_transfer/plane/begin_line.h"

namespace quire {
namespace {

using boost::system::error_code;
using Wait = asio::posix::stream_descriptor::wait_type;

constexpr std::size_t kReadAtOnce = 64 << 10;

KvLost lost(const std::string& detail) { return {KvLossReason::peer_lost, detail}; }
KvLost silent(const std::string& detail) { return {KvLossReason::peer_lost, detail, true}; }

// Nothing passed now, and the socket must be waited for; anything else ends the line.
bool must_wait(ssize_t passed) {
  if (passed >= 0 || errno == EINTR) return false;
  if (errno == EAGAIN) return true;
  throw lost(error_code(errno, boost::system::system_category()).message());
}

}  // namespace

struct ByteLine::Socket {
  asio::posix::stream_descriptor stream;

  int fd() { return stream.native_handle(); }
  awaitable<void> wait(Wait what) {
    error_code error;
    co_await stream.async_wait(what, asio::redirect_error(asio::use_awaitable, error));
    if (error == asio::error::operation_aborted) throw boost::system::system_error(error);
    if (error) throw lost(error.message());
  }
};

ByteLine::ByteLine(asio::any_io_executor executor, Descriptor socket,
                   std::chrono::nanoseconds silence)
    : socket_(new Socket{asio::posix::stream_descriptor(executor, socket.release())}),
      silence_(silence) {
  socket_->stream.native_non_blocking(true);
}

ByteLine::~ByteLine() = default;

awaitable<bool> ByteLine::wait(bool to_write) {
  const std::chrono::nanoseconds left = end_ - std::chrono::steady_clock::now();
  if (left <= std::chrono::nanoseconds(0)) co_return false;
  co_return co_await with_timeout(std::min(silence_, left),
                                  socket_->wait(to_write ? Wait::wait_write : Wait::wait_read));
}

awaitable<void> ByteLine::connected() {
  const bool in_time = co_await with_timeout(silence_, socket_->wait(Wait::wait_write));
  if (!in_time) throw silent("no answer to a connection");
  if (const std::string error = connect_error(socket_->fd()); !error.empty()) throw lost(error);
}

awaitable<bool> ByteLine::has_come(std::chrono::nanoseconds patience) {
  co_return co_await with_timeout(patience, readable());
}

// A wait may end for what has been read since it began.
awaitable<void> ByteLine::readable() {
  while (true) {
    std::byte one{};
    const ssize_t got = ::recv(socket_->fd(), &one, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0) throw lost("the other end closed the line");
    if (!must_wait(got)) co_return;
    co_await socket_->wait(Wait::wait_read);
  }
}

awaitable<void> ByteLine::read(std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = ::recv(socket_->fd(), into.data(), into.size(), MSG_DONTWAIT);
    if (got == 0) throw lost("the other end closed the line");
    if (got > 0) into = into.subspan(static_cast<std::size_t>(got));
    if (!must_wait(got)) continue;
    const bool in_time = co_await wait(false);
    if (!in_time) throw silent("silent in the middle of something");
  }
}

awaitable<std::string> ByteLine::read_text(std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    const std::size_t had = text.size();
    text.resize(std::min(bytes, had + kReadAtOnce));
    const auto part = std::as_writable_bytes(std::span(text).subspan(had));
    co_await read(part);
  }
  co_return text;
}

awaitable<std::string> ByteLine::read_to_end(std::size_t most) {
  std::string all;
  std::array<char, 4096> part{};
  while (all.size() <= most) {
    const ssize_t got = ::recv(socket_->fd(), part.data(), part.size(), MSG_DONTWAIT);
    if (got == 0) co_return all;
    if (got > 0) all.append(part.data(), static_cast<std::size_t>(got));
    if (!must_wait(got)) continue;
    const bool in_time = co_await wait(false);
    if (!in_time) throw silent("silent in the middle of an answer");
  }
  throw KvLost(KvLossReason::corrupt, "an answer is too long");
}

awaitable<std::string> ByteLine::read_until(std::string_view end, std::size_t most) {
  std::string all;
  while (!all.ends_with(end)) {
    if (all.size() >= most) throw KvLost(KvLossReason::corrupt, "a request is too long");
    std::array<std::byte, 1> one{};
    co_await read(one);
    all += static_cast<char>(one[0]);
  }
  co_return all;
}

awaitable<void> ByteLine::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent =
        ::send(socket_->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
    if (!must_wait(sent)) continue;
    const bool in_time = co_await wait(true);
    if (!in_time) throw silent("takes nothing any more");
  }
}

awaitable<void> ByteLine::write(const std::string& bytes) {
  const auto span = std::as_bytes(std::span(bytes));
  co_await write(span);
}

awaitable<void> ByteLine::let_others() {
  co_await asio::post(socket_->stream.get_executor(), asio::use_awaitable);
}

asio::any_io_executor ByteLine::executor() const { return socket_->stream.get_executor(); }
void ByteLine::end_writing() { ::shutdown(socket_->fd(), SHUT_WR); }
void ByteLine::hang_up() { ::shutdown(socket_->fd(), SHUT_RDWR); }

awaitable<std::unique_ptr<ByteLine>> connect_line(asio::any_io_executor executor,
                                                  SocketAddress address,
                                                  std::chrono::nanoseconds silence) {
  Descriptor socket = co_await begin_line(address, silence);
  auto line = std::make_unique<ByteLine>(executor, std::move(socket), silence);
  co_await line->connected();
  co_return line;
}

}  // namespace quire
