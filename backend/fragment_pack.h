#pragma once
// Rows of codes into the tiles of backend/fragment_weights.h.

#include <cstddef>
#include <cstdint>

#include "backend/fragment_weights.h"
#include "backend/group_pack.h"

namespace quire {

// Writes row `row` of a matrix whose tiles begin at `tiles`, where there are zeros. Several threads
// may write rows of one tile. False where a scale or minimum is no finite float16.
bool pack_fragment_row(const GroupFormat& format, const CodeRow& from, std::int64_t row,
                       std::byte* tiles);

}  // namespace quire
