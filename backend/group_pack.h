#pragma once
// Rows of codes into the tiles of backend/group_weights.h.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/group_weights.h"

namespace quire {

struct CodeRow {
  explicit CodeRow(std::int64_t columns, const GroupFormat& format)
      : codes(static_cast<std::size_t>(columns)),
        scales(static_cast<std::size_t>(columns / format.group)),
        mins(scales.size()) {}

  std::vector<std::uint8_t> codes;
  std::vector<float> scales, mins;  // by group
};

// Writes it as a float16; false where that is not finite.
bool put_half(std::byte* to, float value);

// Writes row `row` of a matrix whose tiles begin at `tiles`, whatever was there. Several threads
// may write rows of one tile. False where a scale or minimum is no finite float16.
bool pack_row(const GroupFormat& format, const CodeRow& from, std::int64_t row, std::byte* tiles);

// The numbers that row `row` stands for, all its columns.
void unpack_row(const GroupFormat& format, const std::byte* tiles, std::int64_t row,
                std::span<float> out);

}  // namespace quire
