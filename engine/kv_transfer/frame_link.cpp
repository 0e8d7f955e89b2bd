#include "engine/kv_transfer/frame_link.h"

#include <unistd.h>
#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace quire {
namespace {

using boost::system::error_code;
using Stream = asio::generic::stream_protocol;

int family_of(const Descriptor& socket) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &size);
  return name.ss_family;
}

KvLost lost(const std::string& detail) { return {KvLossReason::peer_lost, detail}; }

// What a coroutine under a deadline reports: errors are values there, cancellation passes.
void throw_if(const error_code& error) {
  if (error == asio::error::operation_aborted) throw boost::system::system_error(error);
  if (error) throw lost(error.message());
}

}  // namespace

struct FrameLink::Socket {
  Stream::socket stream;

  awaitable<void> read(std::span<std::byte> into) {
    error_code error;
    co_await asio::async_read(stream, asio::buffer(into.data(), into.size()),
                              asio::redirect_error(asio::use_awaitable, error));
    throw_if(error);
  }
  awaitable<void> wait_readable() {
    error_code error;
    co_await stream.async_wait(Stream::socket::wait_read,
                               asio::redirect_error(asio::use_awaitable, error));
    throw_if(error);
  }
  awaitable<void> wait_writable() {
    error_code error;
    co_await stream.async_wait(Stream::socket::wait_write,
                               asio::redirect_error(asio::use_awaitable, error));
    throw_if(error);
  }
  awaitable<void> write(const std::array<std::byte, kKvHeaderBytes>& head,
                        std::span<const std::byte> body) {
    const std::array<asio::const_buffer, 2> both{asio::buffer(head.data(), head.size()),
                                                 asio::buffer(body.data(), body.size())};
    error_code error;
    co_await asio::async_write(stream, both, asio::redirect_error(asio::use_awaitable, error));
    throw_if(error);
  }
};

FrameLink::FrameLink(asio::any_io_executor executor, Descriptor socket,
                     std::chrono::nanoseconds silence)
    : socket_(
          new Socket{Stream::socket(executor, Stream(family_of(socket), 0), ::dup(socket.get()))}),
      silence_(silence) {
  socket_->stream.native_non_blocking(true);
}

FrameLink::~FrameLink() = default;

awaitable<void> FrameLink::connected() {
  const bool in_time = co_await with_timeout(silence_, socket_->wait_writable());
  if (!in_time) throw lost("no answer to a connection");
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket_->stream.native_handle(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) throw lost(error_code(error, boost::system::system_category()).message());
}

awaitable<void> FrameLink::read_exactly(std::span<std::byte> into,
                                        std::chrono::nanoseconds patience) {
  const bool in_time = co_await with_timeout(patience, socket_->read(into));
  if (!in_time) throw lost("silent in the middle of a frame");
}

awaitable<KvFrameHeader> FrameLink::read_header(std::chrono::nanoseconds patience) {
  const bool in_time = co_await with_timeout(patience, socket_->wait_readable());
  if (!in_time) throw lost("silent for too long");
  std::array<std::byte, kKvHeaderBytes> bytes{};
  co_await read_exactly(bytes, silence_);
  const Result<KvFrameHeader> header = parse_kv_header(bytes);
  if (!header) throw KvLost(KvLossReason::corrupt, header.error().detail);
  co_return *header;
}

awaitable<std::string> FrameLink::read_message(const KvFrameHeader& header) {
  if (header.size > kMaxKvMessageBytes)
    throw KvLost(KvLossReason::corrupt, "a message is too long");
  std::string body(header.size, '\0');
  const auto bytes = std::as_writable_bytes(std::span(body));
  co_await read_exactly(bytes, silence_);
  if (!is_intact(header, bytes))
    throw KvLost(KvLossReason::corrupt, "a message's checksum is wrong");
  co_return body;
}

awaitable<void> FrameLink::read_piece(const KvFrameHeader& header, std::span<std::byte> into) {
  if (header.size != into.size()) throw KvLost(KvLossReason::corrupt, "a piece has another size");
  co_await read_exactly(into, silence_);
  if (!is_intact(header, into)) throw KvLost(KvLossReason::corrupt, "a piece's checksum is wrong");
}

awaitable<void> FrameLink::write_all(const KvFrameHeader& header, std::span<const std::byte> body) {
  const auto head = encode(header);
  const bool in_time = co_await with_timeout(silence_, socket_->write(head, body));
  if (!in_time) throw lost("takes nothing any more");
}

awaitable<void> FrameLink::send(KvFrameType type, std::uint64_t stream,
                                const std::string& message) {
  const auto body = std::as_bytes(std::span(message));
  KvFrameHeader header;
  header.type = type;
  header.stream = stream;
  co_await write_all(sealed(header, body), body);
}

awaitable<void> FrameLink::send_piece(std::uint64_t stream, std::uint64_t sequence,
                                      std::span<const std::byte> bytes) {
  KvFrameHeader header;
  header.type = KvFrameType::piece;
  header.stream = stream;
  header.sequence = sequence;
  co_await write_all(sealed(header, bytes), bytes);
}

}  // namespace quire
