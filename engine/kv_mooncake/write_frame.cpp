#include "engine/kv_mooncake/write_frame.h"

#include <bit>
#include <cstring>

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr std::uint8_t kRead = 0, kWrite = 1, kWithStatus = 0x80;
constexpr std::size_t kAddressAt = 8, kOperationAt = 16;
constexpr std::uint64_t kStatusTaken = 0x4d43545600000000, kStatusRefused = kStatusTaken | 1;

}  // namespace

MooncakeHeader encode(const MooncakeWrite& write) {
  MooncakeHeader header{};
  std::memcpy(header.data(), &write.bytes, sizeof write.bytes);
  std::memcpy(header.data() + kAddressAt, &write.address, sizeof write.address);
  const int operation = (write.is_read ? kRead : kWrite) | (write.wants_status ? kWithStatus : 0);
  header[kOperationAt] = static_cast<std::byte>(operation);
  return header;
}

std::optional<MooncakeWrite> parse_mooncake_write(
    std::span<const std::byte, kMooncakeHeaderBytes> bytes) {
  MooncakeWrite write;
  std::memcpy(&write.bytes, bytes.data(), sizeof write.bytes);
  std::memcpy(&write.address, bytes.data() + kAddressAt, sizeof write.address);
  const auto operation = static_cast<std::uint8_t>(bytes[kOperationAt]);
  write.wants_status = (operation & kWithStatus) != 0;
  write.is_read = (operation & ~kWithStatus) == kRead;
  if (!write.is_read && (operation & ~kWithStatus) != kWrite) return std::nullopt;
  return write;
}

MooncakeStatusFrame mooncake_status(bool taken) {
  return std::bit_cast<MooncakeStatusFrame>(taken ? kStatusTaken : kStatusRefused);
}

bool is_taken(const MooncakeStatusFrame& frame) {
  return std::bit_cast<std::uint64_t>(frame) == kStatusTaken;
}

}  // namespace quire
