#include "engine/kv_transfer/quire/frame_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/kv_transfer/content/frame_sum.h"

namespace quire {
namespace {

using boost::system::error_code;
using Stream = asio::generic::stream_protocol;

Stream::socket stream_of(const asio::any_io_executor& executor, Descriptor socket) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &size);
  return {executor, Stream(name.ss_family, 0), socket.release()};
}

constexpr int kSilencesPerFrame = 5;
constexpr int kUnwaitedInARow = 16;               // frames that were there already
constexpr std::size_t kSummedAtOnce = 128 << 10;  // bytes that are still in the cache then
static_assert(kSummedAtOnce % KvSum::kStride == 0);

KvLost lost(const std::string& detail) { return {KvLossReason::peer_lost, detail}; }
KvLost silent(const std::string& detail) { return {KvLossReason::peer_lost, detail, true}; }

// Nothing passed now, and the socket must be waited for; anything else ends the line.
bool must_wait(ssize_t passed) {
  if (passed >= 0 || errno == EINTR) return false;
  if (errno == EAGAIN) return true;
  throw lost(error_code(errno, boost::system::system_category()).message());
}

void add_descriptor(msghdr& message, std::span<std::byte> control, int descriptor) {
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
}

}  // namespace

struct FrameLink::Socket {
  Stream::socket stream;

  int fd() { return stream.native_handle(); }
  awaitable<void> wait(Stream::socket::wait_type what) {
    error_code error;
    co_await stream.async_wait(what, asio::redirect_error(asio::use_awaitable, error));
    // What a coroutine under a deadline reports: errors are values there, cancellation passes.
    if (error == asio::error::operation_aborted) throw boost::system::system_error(error);
    if (error) throw lost(error.message());
  }
  // After a piece, so that one line does not keep the others waiting.
  awaitable<void> let_others() { co_await asio::post(stream.get_executor(), asio::use_awaitable); }
};

FrameLink::FrameLink(asio::any_io_executor executor, Descriptor socket,
                     std::chrono::nanoseconds silence)
    : socket_(new Socket{stream_of(executor, std::move(socket))}), silence_(silence) {
  socket_->stream.native_non_blocking(true);
}

FrameLink::~FrameLink() = default;

awaitable<void> FrameLink::connected() {
  const bool in_time = co_await with_timeout(silence_, socket_->wait(Stream::socket::wait_write));
  if (!in_time) throw silent("no answer to a connection");
  if (const std::string error = connect_error(socket_->fd()); !error.empty()) throw lost(error);
}

bool FrameLink::is_quiet() const {
  std::byte one{};
  return ::recv(socket_->fd(), &one, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

// A wait may end for what has been read since it began.
awaitable<void> FrameLink::readable() {
  do {
    co_await socket_->wait(Stream::socket::wait_read);
  } while (is_quiet());
}

void FrameLink::hang_up() { ::shutdown(socket_->fd(), SHUT_RDWR); }

FrameLink::Clock::time_point FrameLink::frame_end() const {
  return Clock::now() + kSilencesPerFrame * silence_;
}

// With what comes along: the newest descriptor counts, and no other stays open.
ssize_t FrameLink::receive(std::span<std::byte> into) {
  iovec part{into.data(), into.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket_->fd(), &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return got;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const auto* data = CMSG_DATA(head);
    for (std::size_t bytes = head->cmsg_len - CMSG_LEN(0); bytes >= sizeof(int);
         bytes -= sizeof(int), data += sizeof(int)) {
      int descriptor = -1;
      std::memcpy(&descriptor, data, sizeof descriptor);
      descriptor_.reset(descriptor);
    }
  }
  return got;
}

awaitable<void> FrameLink::read_exactly(std::span<std::byte> into, Clock::time_point end) {
  while (!into.empty()) {
    const ssize_t got = receive(into);
    if (got == 0) throw lost("the other end closed the line");
    if (got > 0) into = into.subspan(static_cast<std::size_t>(got));
    if (!must_wait(got)) continue;
    if (Clock::now() >= end) throw silent("too slow in the middle of a frame");
    const bool in_time = co_await with_timeout(silence_, socket_->wait(Stream::socket::wait_read));
    if (!in_time) throw silent("silent in the middle of a frame");
  }
}

awaitable<KvFrameHeader> FrameLink::read_header(std::chrono::nanoseconds patience) {
  std::array<std::byte, kKvHeaderBytes> bytes{};
  ssize_t here = receive(bytes);  // most often it is there: to wait for it would cost more
  while (here < 0 && errno == EINTR) here = receive(bytes);
  if (here == 0) throw lost("the other end closed the line");
  if (must_wait(here)) {
    if (!co_await with_timeout(patience, readable())) throw silent("silent for too long");
    num_unwaited_ = 0;
  } else if (++num_unwaited_ >= kUnwaitedInARow) {  // or a flood of them would be all that runs
    num_unwaited_ = 0;
    co_await let_others();
  }
  const auto have = static_cast<std::size_t>(std::max<ssize_t>(here, 0));
  co_await read_exactly(std::span(bytes).subspan(have), frame_end());
  const Result<KvFrameHeader> header = parse_kv_header(bytes);
  if (!header) throw KvLost(KvLossReason::corrupt, header.error().detail);
  co_return *header;
}

awaitable<std::string> FrameLink::read_message(const KvFrameHeader& header) {
  if (header.size > kMaxKvMessageBytes)
    throw KvLost(KvLossReason::corrupt, "a message is too long");
  std::string body(header.size, '\0');
  const auto bytes = std::as_writable_bytes(std::span(body));
  co_await read_exactly(bytes, frame_end());
  if (!is_intact(header, bytes))
    throw KvLost(KvLossReason::corrupt, "a message's checksum is wrong");
  co_return body;
}

awaitable<void> FrameLink::read_piece(const KvFrameHeader& header, std::span<std::byte> into) {
  if (header.size != into.size()) throw KvLost(KvLossReason::corrupt, "a piece has another size");
  KvSum sum = sum_of_body(header);
  const auto end = frame_end();
  for (; into.size() > kSummedAtOnce; into = into.subspan(kSummedAtOnce)) {
    co_await read_exactly(into.first(kSummedAtOnce), end);
    sum.add(into.first(kSummedAtOnce));
  }
  co_await read_exactly(into, end);
  if (sum.end(into) != header.checksum)
    throw KvLost(KvLossReason::corrupt, "a piece's checksum is wrong");
  co_await socket_->let_others();
}

awaitable<void> FrameLink::let_others() { co_await socket_->let_others(); }

awaitable<void> FrameLink::write_all(const KvFrameHeader& header, std::span<const std::byte> body,
                                     int descriptor) {
  const auto head = encode(header);
  std::span<const std::byte> first(head), rest(body);
  const auto end = frame_end();
  while (!first.empty() || !rest.empty()) {
    std::array<iovec, 2> both{iovec{const_cast<std::byte*>(first.data()), first.size()},
                              iovec{const_cast<std::byte*>(rest.data()), rest.size()}};
    msghdr message{};
    message.msg_iov = both.data();
    message.msg_iovlen = both.size();
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    if (descriptor >= 0) add_descriptor(message, control, descriptor);
    const ssize_t sent = ::sendmsg(socket_->fd(), &message, MSG_NOSIGNAL);
    if (sent > 0) {
      descriptor = -1;  // it has gone along
      const auto of_head = std::min(first.size(), static_cast<std::size_t>(sent));
      first = first.subspan(of_head);
      rest = rest.subspan(static_cast<std::size_t>(sent) - of_head);
    }
    if (!must_wait(sent)) continue;
    if (Clock::now() >= end) throw silent("takes what is sent too slowly");
    const bool in_time = co_await with_timeout(silence_, socket_->wait(Stream::socket::wait_write));
    if (!in_time) throw silent("takes nothing any more");
  }
}

awaitable<void> FrameLink::send(KvFrameType type, std::uint64_t stream, const std::string& message,
                                int descriptor) {
  const auto body = std::as_bytes(std::span(message));
  KvFrameHeader header;
  header.type = type;
  header.stream = stream;
  co_await write_all(sealed(header, body), body, descriptor);
}

// Each place has a turn of its own: its sum is that of the piece's frame.
awaitable<void> FrameLink::send_placed(std::uint64_t stream, std::uint64_t sequence,
                                       std::int64_t offset, std::span<const std::byte> bytes) {
  KvFrameHeader piece;
  piece.type = KvFrameType::piece;
  piece.stream = stream;
  piece.sequence = sequence;
  KvPlaced placed;
  placed.offset = offset;
  placed.bytes = static_cast<std::int64_t>(bytes.size());
  placed.checksum = sealed(piece, bytes).checksum;
  const std::string text = encode_kv(placed);
  const auto body = std::as_bytes(std::span(text));
  KvFrameHeader header;
  header.type = KvFrameType::placed;
  header.stream = stream;
  header.sequence = sequence;
  co_await write_all(sealed(header, body), body);
  co_await socket_->let_others();
}

awaitable<void> FrameLink::read_placed(const KvFrameHeader& header,
                                       std::span<const std::byte> memory,
                                       std::span<std::byte> into) {
  const std::string body = co_await read_message(header);
  const auto placed = decode_kv<KvPlaced>(body);
  const auto size = static_cast<std::int64_t>(memory.size());
  if (!placed || placed->bytes != static_cast<std::int64_t>(into.size()) || placed->offset < 0 ||
      placed->offset > size - placed->bytes)
    throw KvLost(KvLossReason::corrupt, "a piece lies outside of what is shared");
  const auto from = memory.subspan(static_cast<std::size_t>(placed->offset), into.size());
  KvSum sum = sum_of_body({.type = KvFrameType::piece,
                           .stream = header.stream,
                           .sequence = header.sequence,
                           .size = into.size()});
  const std::size_t whole = into.size() / KvSum::kStride * KvSum::kStride;
  sum.copy(from.first(whole), into.data());
  const auto rest = into.subspan(whole);
  if (!rest.empty()) std::memcpy(rest.data(), from.data() + whole, rest.size());
  if (sum.end(rest) != placed->checksum)
    throw KvLost(KvLossReason::corrupt, "a piece's checksum is wrong");
  co_await socket_->let_others();
}

awaitable<void> FrameLink::send_piece(std::uint64_t stream, std::uint64_t sequence,
                                      std::span<const std::byte> bytes) {
  KvFrameHeader header;
  header.type = KvFrameType::piece;
  header.stream = stream;
  header.sequence = sequence;
  co_await write_all(sealed(header, bytes), bytes);
  co_await socket_->let_others();
}

}  // namespace quire
