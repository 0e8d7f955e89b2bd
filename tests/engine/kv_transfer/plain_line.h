#pragma once
// A socket that blocks, and frames of the local plane over it.

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>

#include "engine/kv_transfer/content/frames.h"
#include "engine/wire/socket_address.h"

namespace quire::test {

inline Descriptor plain_socket() {
  Descriptor line(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{.tv_sec = 10, .tv_usec = 0};
  ::setsockopt(line.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(line.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  return line;
}

inline void connect_here(const Descriptor& line, std::uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(line.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
}

// With little room for what comes.
inline Descriptor plain_line(std::uint16_t port) {
  Descriptor line = plain_socket();
  const int small = 4096;
  ::setsockopt(line.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  connect_here(line, port);
  return line;
}

inline std::string frame_with(KvFrameType type, const std::string& body, std::uint64_t stream) {
  KvFrameHeader header;
  header.type = type;
  header.stream = stream;
  const auto head = encode(sealed(header, std::as_bytes(std::span(body))));
  return std::string(reinterpret_cast<const char*>(head.data()), head.size()) + body;
}

template <class Message>
std::string frame_of(KvFrameType type, const Message& message, std::uint64_t stream = 1) {
  return frame_with(type, encode_kv(message), stream);
}

// False: the other end takes nothing any more.
inline bool send_all(const Descriptor& line, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(line.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

template <class Message>
void send_frame(const Descriptor& line, KvFrameType type, const Message& message,
                std::uint64_t stream = 1) {
  REQUIRE(send_all(line, frame_of(type, message, stream)));
}

// The next frame with its body, whatever it is.
inline std::pair<KvFrameHeader, std::string> next_frame(const Descriptor& line) {
  std::array<std::byte, kKvHeaderBytes> head{};
  REQUIRE(::recv(line.get(), head.data(), head.size(), MSG_WAITALL) == kKvHeaderBytes);
  const auto header = parse_kv_header(head);
  REQUIRE(header.has_value());
  std::string body(header->size, '\0');
  if (!body.empty())
    REQUIRE(::recv(line.get(), body.data(), body.size(), MSG_WAITALL) ==
            static_cast<ssize_t>(body.size()));
  return {*header, body};
}

}  // namespace quire::test
