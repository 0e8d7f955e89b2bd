#include "backend/group_pack.h"

#include <cstring>

#include "base/half.h"

namespace quire {

bool put_half(std::byte* to, float value) {
  const std::uint16_t half = float_to_half(value);
  std::memcpy(to, &half, sizeof half);
  return (half & 0x7c00u) != 0x7c00u;
}

namespace {

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

float half_of(const std::byte* from) {
  std::uint16_t half;
  std::memcpy(&half, from, sizeof half);
  return half_to_float(half);
}

// What put_codes() wrote.
void take_codes(int bits, const std::byte* from, std::uint8_t* codes) {
  const auto byte = [&](int at) { return static_cast<int>(from[at / 4 * 64 + at % 4]); };
  for (int c = 0; c < kGroupTileColumns; ++c) {
    int code = bits == 8 ? byte(c) : byte(c % 16) >> c / 16 * 4 & 15;
    if (bits == 6) code |= (byte(16 + c % 8) >> c / 8 * 2 & 3) << 4;
    codes[c] = static_cast<std::uint8_t>(code);
  }
}

}  // namespace

void unpack_row(const GroupFormat& format, const std::byte* tiles, std::int64_t row,
                std::span<float> out) {
  const std::size_t tile_bytes = group_tile_bytes(format);
  const std::size_t across = out.size() / kGroupTileColumns;
  const auto within = static_cast<std::size_t>(row % kGroupTileRows);
  const std::byte* tile =
      tiles + static_cast<std::size_t>(row / kGroupTileRows) * across * tile_bytes;
  const std::size_t groups = kGroupTileColumns / format.group;
  for (std::size_t t = 0; t < across; ++t, tile += tile_bytes) {
    std::uint8_t codes[kGroupTileColumns];
    take_codes(format.bits, tile + group_scale_bytes(format) + 4 * within, codes);
    for (std::size_t g = 0; g < groups; ++g) {
      const std::byte* const at = tile + (g * kGroupTileRows + within) * 2;
      const float scale = half_of(at);
      const float min = format.has_min ? half_of(at + groups * kGroupTileRows * 2) : 0.f;
      for (std::size_t c = g * format.group; c < (g + 1) * format.group; ++c) {
        const int value = (format.nonlinear ? kNonlinearCodes[codes[c]] : codes[c]) - format.zero;
        out[t * kGroupTileColumns + c] = scale * static_cast<float>(value) - min;
      }
    }
  }
}

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
