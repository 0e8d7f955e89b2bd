#pragma once
// Writes MessagePack: what KV events and handshakes need of it. Smallest forms, as Python's
// encoders choose them.

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quire {

class MsgpackWriter {
 public:
  void nil() { byte(0xc0); }
  void real(double value) { tagged(0xcb, std::bit_cast<std::uint64_t>(value), 8); }

  void integer(std::uint64_t value) {
    if (value < 0x80) return byte(static_cast<std::uint8_t>(value));
    sized(0xcc, value);
  }
  void signed_integer(std::int64_t value) {
    if (value >= 0) return integer(static_cast<std::uint64_t>(value));
    if (value >= -32) return byte(static_cast<std::uint8_t>(value));
    const auto bits = static_cast<std::uint64_t>(value);
    if (value >= INT8_MIN) return tagged(0xd0, bits, 1);
    if (value >= INT16_MIN) return tagged(0xd1, bits, 2);
    value >= INT32_MIN ? tagged(0xd2, bits, 4) : tagged(0xd3, bits, 8);
  }
  void text(std::string_view value) {
    if (value.size() < 32)
      byte(static_cast<std::uint8_t>(0xa0 | value.size()));
    else
      sized(0xd9, value.size());
    out_ += value;
  }
  void binary(std::span<const std::uint8_t> value) {
    sized(0xc4, value.size());
    out_.append(reinterpret_cast<const char*>(value.data()), value.size());
  }
  // Names and values follow, in turn.
  void map(std::size_t size) {
    if (size < 16) return byte(static_cast<std::uint8_t>(0x80 | size));
    size <= UINT16_MAX ? tagged(0xde, size, 2) : tagged(0xdf, size, 4);
  }
  // The elements follow.
  void array(std::size_t size) {
    if (size < 16) return byte(static_cast<std::uint8_t>(0x90 | size));
    size <= UINT16_MAX ? tagged(0xdc, size, 2) : tagged(0xdd, size, 4);
  }

  std::string take() { return std::move(out_); }

 private:
  void byte(std::uint8_t value) { out_ += static_cast<char>(value); }
  void tagged(std::uint8_t tag, std::uint64_t value, int bytes) {
    byte(tag);
    for (int i = bytes - 1; i >= 0; --i) byte(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  // The tag of the 8-bit form; those of 16, 32 and 64 bits follow it.
  void sized(std::uint8_t tag, std::uint64_t value) {
    if (value <= UINT8_MAX) return tagged(tag, value, 1);
    if (value <= UINT16_MAX) return tagged(static_cast<std::uint8_t>(tag + 1), value, 2);
    if (value <= UINT32_MAX) return tagged(static_cast<std::uint8_t>(tag + 2), value, 4);
    tagged(static_cast<std::uint8_t>(tag + 3), value, 8);
  }

  std::string out_;
};

}  // namespace quire
