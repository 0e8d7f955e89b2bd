#include "model/group_pack.h"

#include <cmath>
#include <cstring>

#include "backend/dtype.h"

namespace quire {

namespace {

bool put_half(std::byte* to, float value) {
  const f16 half(value);
  std::memcpy(to, &half, sizeof half);
  return std::isfinite(static_cast<float>(half));
}

void put_codes(const GroupFormat& format, const std::uint8_t* codes, int row, std::byte* planes) {
  auto* const out = reinterpret_cast<std::uint8_t*>(planes) + 4 * row;
  for (int c = 0; c < kGroupTileColumns; ++c) {
    const std::uint8_t code = codes[c];
    if (format.bits == 8) {
      out[c / 4 * 64 + c % 4] = code;
      continue;
    }
    const int at = c % 16;
    out[at / 4 * 64 + at % 4] |= static_cast<std::uint8_t>((code & 15) << c / 16 * 4);
    if (format.bits == 6) {
      const int high = c % 8;
      out[256 + high / 4 * 64 + high % 4] |= static_cast<std::uint8_t>(code >> 4 << c / 8 * 2);
    }
  }
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
    put_codes(format, from.codes.data() + t * kGroupTileColumns, within,
              tile + group_scale_bytes(format));
  }
  return finite;
}

}  // namespace quire
