#pragma once
// Matrices of small integers (GroupFormat) in the layout that a GPU's tensor cores read: tiles of
// 16 rows × 128 columns, one row of tiles after another, zeros beyond the matrix. What a lane of a
// warp takes of a tile lies in pieces of 16 bytes side by side with those of the other lanes.
//
// Lane l has rows l / 4 and l / 4 + 8, the halves, and of each slice of 32 columns eight: from 8 (l
// % 4) on, or, where groups are of 16, from 4 (l % 4) on and from 16 + 4 (l % 4) on, four each.
//
// A tile: float16 scales [8 rows][128 / group][scale, minimum if any][half], then codes.
//   4 bits  [slice / 2][lane][slice % 2][half], eight codes in a word each: element e in the nibble
//           4 (e % 2) + e / 2, or of codes that index numbers 4 (e / 4) + kByteOfElement[e % 4]
//   6 bits  the low 4 likewise, then the high 2 [lane][slice / 2][half]: element e of a slice in
//   the
//           bits from 16 (e % 2) + 8 (slice % 2) + 2 (e / 2) on
//   8 bits  [slice][lane][half][2], four codes in a word: element e in the byte kByteOfElement[e %
//   4]

#include <cstdint>

#include "backend/group_weights.h"

namespace quire {

inline constexpr int kFragmentRows = 16, kFragmentColumns = 128, kFragmentSlice = 32;
// Two bytes apart are a pair.
inline constexpr int kByteOfElement[4] = {0, 2, 1, 3};

// Groups of 16, 32 or 128 columns; 8 bits around 128 without minima.
constexpr bool fits_fragments(const GroupFormat& format) {
  const bool whole = format.group == 32 || format.group == 128;
  if (format.bits == 8) return whole && format.zero == 128 && !format.has_min;
  if (format.nonlinear) return format.bits == 4 && format.group == 32 && !format.has_min;
  if (format.bits == 6) return format.group == 32 || (format.group == 16 && !format.has_min);
  return format.bits == 4 && (whole || format.group == 16);
}

constexpr std::int64_t fragment_scale_bytes(const GroupFormat& format) {
  return kFragmentRows * (kFragmentColumns / format.group) * (format.has_min ? 4 : 2);
}
constexpr std::int64_t fragment_tile_bytes(const GroupFormat& format) {
  return fragment_scale_bytes(format) + kFragmentRows * kFragmentColumns * format.bits / 8;
}
constexpr std::int64_t fragment_tiles(std::int64_t columns) {
  return (columns + kFragmentColumns - 1) / kFragmentColumns;
}
// Of one row, as an extent of Weight::data.
constexpr std::int64_t fragment_row_bytes(const GroupFormat& format, std::int64_t columns) {
  return fragment_tiles(columns) * fragment_tile_bytes(format) / kFragmentRows;
}

}  // namespace quire
