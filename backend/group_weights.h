#pragma once
// Matrices of small integers, with a scale for each group of a row's columns, in the layout that
// products with 8-bit inputs read: tiles of 16 rows × 32 columns, one row of tiles after another. A
// lane of a register is a row of the tile: sums need no reduction, and an input is broadcast.
//
// A tile: float16 scales [32 / group, 16], float16 minima likewise, if any, then codes.
// The byte 4 · row + j of 64 bytes i holds, of 8 bits: column 4 i + j. Of 4: column 4 i + j in the
// low half and 16 + 4 i + j in the high one. Of 6: the low 4 bits like that, and behind them the
// high 2 of the columns c, 8 + c, 16 + c and 24 + c, c = 4 i + j, from the lowest bits up.

#include <cstddef>
#include <cstdint>

namespace quire {

// element = scale · (code − zero) − minimum
struct GroupFormat {
  std::uint8_t bits = 8;    // of a code: 4, 6 or 8
  std::uint8_t group = 32;  // columns under one scale: 16 or 32, in fragments also 128
  std::uint8_t zero = 0;
  bool has_min = false;
  // 4-bit codes index the sixteen numbers of kNonlinearCodes, and zero is in the same units.
  bool nonlinear = false;

  bool operator==(const GroupFormat&) const = default;
};

inline constexpr int kGroupTileRows = 16, kGroupTileColumns = 32;

// IQ4_NL's numbers plus 128.
inline constexpr int kNonlinearZero = 128;
inline constexpr std::uint8_t kNonlinearCodes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                     129, 141, 153, 166, 181, 197, 217, 241};

constexpr std::size_t group_scale_bytes(const GroupFormat& format) {
  const std::size_t scales = kGroupTileColumns / format.group * kGroupTileRows * 2;
  return format.has_min ? 2 * scales : scales;
}
constexpr std::size_t group_tile_bytes(const GroupFormat& format) {
  return group_scale_bytes(format) + kGroupTileRows * kGroupTileColumns * format.bits / 8;
}
// Of one row, as an extent of Weight::data.
constexpr std::int64_t group_row_bytes(const GroupFormat& format, std::int64_t columns) {
  return columns / kGroupTileColumns *
         static_cast<std::int64_t>(group_tile_bytes(format) / kGroupTileRows);
}

}  // namespace quire
