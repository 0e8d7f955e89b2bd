#pragma once
// ZeroMQ's protocol, version 3, as far as a DEALER and a ROUTER need it that know each other:
// greeting, READY, messages of one frame, PING and PONG. No security, as vLLM's connector has none.
// Pure.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire {

inline constexpr std::size_t kZmtpGreetingBytes = 64;
inline constexpr std::uint64_t kMaxZmtpFrameBytes = 8 << 20;

std::string zmtp_greeting();
Result<void> check_zmtp_greeting(std::string_view bytes);  // of 64

struct ZmtpFlags {
  bool more = false, is_long = false, is_command = false;
};
Result<ZmtpFlags> parse_zmtp_flags(std::byte flags);
// One byte, or of long frames eight. The error: it is beyond the limit.
Result<std::uint64_t> parse_zmtp_size(std::span<const std::byte> bytes);

std::string zmtp_message(std::string_view body);
std::string zmtp_ready(std::string_view socket_type);
std::string zmtp_ping();

enum class ZmtpCommand : std::uint8_t { ready, ping, pong, error, other };
ZmtpCommand command_of(std::string_view body);
// The type that a READY names ("DEALER"); empty: it names none.
std::string zmtp_socket_type(std::string_view ready);
// The answer to a PING, with what it carries.
std::string zmtp_pong(std::string_view ping);

}  // namespace quire
