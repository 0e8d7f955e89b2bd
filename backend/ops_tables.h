#pragma once
// Block tables on the device. The scheduler hands out blocks; a table holds what attention reads,
// `ratio` kernel blocks for each, one row per slot (a running request's place). A step needs those
// rows in its own order, and for each of its tokens where K and V go. Groups of layers have tables
// of different widths; each operator is one launch for all of them.

#include <cstdint>

#include "backend/tensor.h"

namespace quire {

inline constexpr std::int64_t kPadSlot = -1;     // for a token that is written nowhere
inline constexpr std::int32_t kPaddingRow = -1;  // for a row without a request

// Ranks that share each sequence: `interleave` tokens in turn.
struct ContextParallel {
  int size = 1;
  int rank = 0;
  int interleave = 1;
};

struct TableGroup {
  TensorView table;  // i32 [slots, columns], rows may be strided
  TensorView rows;   // i32 [R, columns]: the step's rows; the view may have more
  TensorView slots;  // i64 [T]: the step's tokens, then padding
  int ratio = 1;     // kernel blocks per block
  int kernel_block_size = 0;  // tokens
};

// Write w puts blocks [first[w], first[w + 1]) into the row slot[w] of group[w], from kernel block
// column[w] on. No cell is written twice.
struct TableWrites {
  TensorView group;   // i32 [W]
  TensorView slot;    // i32 [W]
  TensorView column;  // i32 [W]
  TensorView first;   // i32 [W + 1]
  TensorView blocks;  // i32: the scheduler's
};

// The rows of a step. Row r has tokens query_start[r] … query_start[r + 1] − 1, the last of them at
// position seq_lens[r] − 1 of its request.
struct TableRows {
  TensorView slot;         // i32 [R], kPaddingRow: its tables are null blocks, its tokens padding
  TensorView counts;       // i32 [groups, R]: kernel blocks in use
  TensorView query_start;  // i32 [R + 1]
  TensorView seq_lens;     // i32 [R]
};

}  // namespace quire
