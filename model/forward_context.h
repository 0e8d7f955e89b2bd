#pragma once
// What one step's forward pass reads besides weights. The runner fills it; every view is on the
// device.

#include <span>

#include "backend/collectives.h"
#include "backend/ops.h"
#include "backend/workspace.h"

namespace quire {

// One KV cache group in this step.
struct GroupInputs {
  TensorView block_table;  // i32 [R, columns]: kernel blocks (attention groups)
  TensorView slots;        // i64 [T]: where this step's tokens go; −1: nowhere (attention groups)
  TensorView state_read;   // i32 [R]: block that holds the state before this step; −1: start from
                           // zero (state groups)
  TensorView state_write;  // i32 [R]: block that takes the state after this step (state groups)
  // i32 [T], optional: block that takes the state after this token; −1: none (state groups)
  TensorView token_states = {};
  SharedPrefixes shared = {};  // of the step's rows (attention groups)
};

// Where forward() hands out a residual stream, for a draft model to read.
struct StreamTap {
  int layer = 0;   // the stream that enters it; the number of layers: the one after the last
  TensorView out;  // [T, hidden]; rows may be strided
};

struct ForwardContext {
  Ops& ops;
  StreamRef stream;
  Workspace& workspace;
  TensorView positions;    // i32 [T], plus Model::position_offset of the request
  TensorView query_start;  // i32 [R + 1]
  TensorView seq_lens;     // i32 [R]
  int max_query_len = 0;
  int max_seq_len = 0;
  std::span<const GroupInputs> groups;  // by group index of the KV plan
  Collectives* collectives = nullptr;    // of the ranks; null: the model is whole
  // Empty: operators may not be chosen by it, as in a graph, or where a token's bits must not depend
  // on how many are computed with it.
  HostRows host_rows = {};
  std::span<const StreamTap> taps = {};  // layers ascend; only where Model::hands_out_streams()
};

}  // namespace quire
