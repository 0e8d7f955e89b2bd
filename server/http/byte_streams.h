#pragma once
// The three kinds of ByteStream; only listener.cpp includes it.

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <optional>
#include <utility>

#include "server/http/byte_stream.h"
#include "server/http/peer_address.h"

namespace quire {

using boost::system::error_code;

// What reading and writing have in common, whatever is below.
template <class Stream>
class BasicByteStream : public ByteStream {
 public:
  explicit BasicByteStream(Stream stream) : stream_(std::move(stream)) {}

  awaitable<bool> handshake() override { co_return true; }

  awaitable<std::size_t> read_some(std::span<char> buffer) override {
    error_code error;
    const std::size_t size =
        co_await stream_.async_read_some(asio::buffer(buffer.data(), buffer.size()),
                                         asio::redirect_error(asio::use_awaitable, error));
    co_return error ? 0 : size;
  }

  awaitable<bool> write(std::string_view bytes) override {
    error_code error;
    co_await asio::async_write(stream_, asio::buffer(bytes.data(), bytes.size()),
                               asio::redirect_error(asio::use_awaitable, error));
    if (error == asio::error::operation_aborted) co_await throw_if_cancelled();
    co_return !error;
  }

  awaitable<void> shut_down() override {
    error_code ignored;
    stream_.lowest_layer().shutdown(asio::socket_base::shutdown_send, ignored);
    co_return;
  }

  std::uint64_t peer() override {
    if (!peer_) peer_ = address_hash(stream_.lowest_layer().native_handle());
    return *peer_;
  }

  bool peer_has_left() override {
    pollfd socket{stream_.lowest_layer().native_handle(), POLLRDHUP, 0};
    return ::poll(&socket, 1, 0) != 0;
  }

  void break_off() override {
    error_code ignored;
    stream_.lowest_layer().cancel(ignored);
  }

 protected:
  static awaitable<void> throw_if_cancelled() {
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) {
      throw boost::system::system_error(asio::error::operation_aborted);
    }
  }

  Stream stream_;

 private:
  std::optional<std::uint64_t> peer_;  // asked for once: a system call
};

template <class Socket>
class SocketByteStream : public BasicByteStream<Socket> {
 public:
  using BasicByteStream<Socket>::BasicByteStream;

  // Nearly every write fits into the socket's buffer, and then costs no turn of the loop.
  std::size_t write_now(std::string_view bytes) override {
    const auto sent = ::send(this->stream_.native_handle(), bytes.data(), bytes.size(),
                             MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
  }
};

using TcpByteStream = SocketByteStream<asio::ip::tcp::socket>;
using LocalByteStream = SocketByteStream<asio::local::stream_protocol::socket>;

class TlsByteStream : public BasicByteStream<asio::ssl::stream<asio::ip::tcp::socket>> {
 public:
  using BasicByteStream::BasicByteStream;

  awaitable<bool> handshake() override {
    error_code error;
    co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                     asio::redirect_error(asio::use_awaitable, error));
    co_return !error;
  }

  std::size_t write_now(std::string_view) override { return 0; }

  awaitable<void> shut_down() override {
    error_code ignored;
    co_await stream_.async_shutdown(asio::redirect_error(asio::use_awaitable, ignored));
  }
};

}  // namespace quire
