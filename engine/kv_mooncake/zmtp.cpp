#include "engine/kv_mooncake/zmtp.h"

#include <fmt/format.h>

namespace quire {
namespace {

constexpr int kMore = 1, kLong = 2, kCommand = 4;
constexpr std::size_t kMostPingBytes = 16;  // that are sent back
constexpr std::size_t kMostShortBytes = 255;

Error refuse(const std::string& why) { return {ErrorCode::invalid_argument, "ZeroMQ: " + why, {}}; }

std::string big_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::uint64_t number_of(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<std::uint8_t>(c);
  return value;
}

std::string frame(int flags, std::string_view body) {
  const bool is_long = body.size() > kMostShortBytes;
  std::string bytes(1, static_cast<char>(flags | (is_long ? kLong : 0)));
  bytes += big_endian(body.size(), is_long ? 8 : 1);
  return bytes += body;
}

std::string command(std::string_view name, std::string_view rest) {
  return frame(kCommand, big_endian(name.size(), 1) + std::string(name) + std::string(rest));
}

// What follows a command's name; empty where it has another.
std::optional<std::string_view> after_name(std::string_view body, std::string_view name) {
  if (body.empty() || static_cast<std::uint8_t>(body[0]) != name.size()) return std::nullopt;
  if (!body.substr(1).starts_with(name)) return std::nullopt;
  return body.substr(1 + name.size());
}

}  // namespace

std::string zmtp_greeting() {
  std::string bytes = "\xff" + std::string(8, '\0') + "\x7f\x03" + std::string(1, '\0') + "NULL";
  bytes.resize(kZmtpGreetingBytes, '\0');
  return bytes;
}

Result<void> check_zmtp_greeting(std::string_view bytes) {
  if (bytes.size() != kZmtpGreetingBytes || bytes[0] != '\xff' || bytes[9] != '\x7f')
    return refuse("a connection did not begin with a greeting");
  if (bytes[10] < 3)
    return refuse(fmt::format("version {} is too old; 3 is spoken", static_cast<int>(bytes[10])));
  if (bytes.substr(12, 5) != std::string_view("NULL\0", 5))
    return refuse("the other end wants a security mechanism; NULL is spoken");
  return {};
}

Result<ZmtpFlags> parse_zmtp_flags(std::byte flags) {
  const int bits = static_cast<int>(flags);
  if ((bits & ~(kMore | kLong | kCommand)) != 0 ||
      (bits & (kMore | kCommand)) == (kMore | kCommand))
    return refuse(fmt::format("a frame has flags {}", bits));
  return ZmtpFlags{(bits & kMore) != 0, (bits & kLong) != 0, (bits & kCommand) != 0};
}

Result<std::uint64_t> parse_zmtp_size(std::span<const std::byte> bytes) {
  const std::uint64_t size = number_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (size > kMaxZmtpFrameBytes)
    return refuse(fmt::format("a frame has {} bytes; {} are read", size, kMaxZmtpFrameBytes));
  return size;
}

std::string zmtp_message(std::string_view body) { return frame(0, body); }

std::string zmtp_ready(std::string_view socket_type) {
  const auto property = [](std::string_view name, std::string_view value) {
    return big_endian(name.size(), 1) + std::string(name) + big_endian(value.size(), 4) +
           std::string(value);
  };
  return command("READY", property("Socket-Type", socket_type) + property("Identity", ""));
}

std::string zmtp_ping() { return command("PING", big_endian(0, 2)); }

ZmtpCommand command_of(std::string_view body) {
  if (after_name(body, "READY")) return ZmtpCommand::ready;
  if (after_name(body, "PING")) return ZmtpCommand::ping;
  if (after_name(body, "PONG")) return ZmtpCommand::pong;
  return after_name(body, "ERROR") ? ZmtpCommand::error : ZmtpCommand::other;
}

std::string zmtp_socket_type(std::string_view ready) {
  auto rest = after_name(ready, "READY").value_or("");
  while (!rest.empty()) {
    const auto name_bytes = static_cast<std::uint8_t>(rest[0]);
    if (rest.size() < std::size_t{name_bytes} + 5) return "";
    const std::string_view name = rest.substr(1, name_bytes);
    const std::uint64_t size = number_of(rest.substr(1 + name_bytes, 4));
    rest.remove_prefix(std::size_t{name_bytes} + 5);
    if (size > rest.size()) return "";
    if (name == "Socket-Type") return std::string(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  return "";
}

// Two bytes say how long the other end will wait; what follows them comes back.
std::string zmtp_pong(std::string_view ping) {
  const std::string_view rest = after_name(ping, "PING").value_or("");
  return command("PONG", rest.size() < 2 ? "" : rest.substr(2, kMostPingBytes));
}

}  // namespace quire
