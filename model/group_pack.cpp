#include "model/group_pack.h"

#include <cstring>

#include "base/half.h"

namespace quire {

namespace {

bool put_half(std::byte* to, float value) {
  const std::uint16_t half = float_to_half(value);
  std::memcpy(to, &half, sizeof half);
  return (half & 0x7c00u) != 0x7c00u;
}

// Four bytes each to a row's place in registers of 64.
template <int kBytes>
void put_words(std::byte* to, const std::uint8_t (&bytes)[kBytes]) {
  for (int i = 0; i < kBytes / 4; ++i) std::memcpy(to + 64 * i, bytes + 4 * i, 4);
}

void put_codes(int bits, const std::uint8_t* codes, std::byte* to) {
  std::uint8_t own[kGroupTileColumns];
  std::memcpy(own, codes, sizeof own);
  if (bits == 8) return put_words(to, own);
  std::uint8_t low[16], high[8];
  for (int c = 0; c < 16; ++c) {
    low[c] = static_cast<std::uint8_t>((own[c] & 15) | (own[16 + c] & 15) << 4);
  }
  put_words(to, low);
  if (bits == 4) return;
  for (int c = 0; c < 8; ++c) {
    high[c] = static_cast<std::uint8_t>(own[c] >> 4 | own[8 + c] >> 4 << 2 | own[16 + c] >> 4 << 4 |
                                        own[24 + c] >> 4 << 6);
  }
  put_words(to + 256, high);
}

}  // namespace

bool pack_row(const GroupFormat& format, const CodeRow& from, std::int64_t row, std::byte* tiles) {
  const std::size_t tile_bytes = group_tile_bytes(format);
  const std::size_t columns = from.codes.size(), across = columns / kGroupTileColumns;
  const auto within = static_cast<int>(row % kGroupTileRows);
  std::byte* tile = tiles + static_cast<std::size_t>(row / kGroupTileRows) * across * tile_bytes;
  const std::size_t groups = kGroupTileColumns / format.group;
  bool finite = true;
  for (std::size_t t = 0; t < across; ++t, tile += tile_bytes) {
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t at = (g * kGroupTileRows + static_cast<std::size_t>(within)) * 2;
      finite &= put_half(tile + at, from.scales[t * groups + g]);
      if (!format.has_min) continue;
      finite &= put_half(tile + groups * kGroupTileRows * 2 + at, from.mins[t * groups + g]);
    }
    put_codes(format.bits, from.codes.data() + t * kGroupTileColumns,
              tile + group_scale_bytes(format) + 4 * within);
  }
  return finite;
}

}  // namespace quire
