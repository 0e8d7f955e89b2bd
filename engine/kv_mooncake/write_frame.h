#pragma once
// Mooncake's TCP transport, of which only writes are spoken: a header, the bytes, and from version
// 2 on a status that says that they are where they belong. Pure.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace quire {

struct MooncakeWrite {
  std::uint64_t address = 0, bytes = 0;
  bool wants_status = true;
  bool is_read = false;  // of memory that nobody may read here

  friend bool operator==(const MooncakeWrite&, const MooncakeWrite&) = default;
};

inline constexpr std::size_t kMooncakeHeaderBytes = 24;
using MooncakeHeader = std::array<std::byte, kMooncakeHeaderBytes>;
MooncakeHeader encode(const MooncakeWrite& write);
std::optional<MooncakeWrite> parse_mooncake_write(
    std::span<const std::byte, kMooncakeHeaderBytes> bytes);  // empty: no such operation

using MooncakeStatusFrame = std::array<std::byte, 8>;
MooncakeStatusFrame mooncake_status(bool taken);
bool is_taken(const MooncakeStatusFrame& frame);

}  // namespace quire
