#pragma once
// Where of a pass only each request's last token is wanted: its keys and values are kept for all
// tokens, the rest is computed for these alone.

#include "backend/tensor.h"

namespace quire {

struct LastTokens {
  TensorView rows = {};    // i32 [R]: of the pass's tokens, in the order of its requests
  TensorView starts = {};  // i32 [R + 1]: 0, 1, 2, …
  TensorView seq_lens = {};  // i32 [R]: tokens up to each; empty: it is its row's last

  bool empty() const { return rows.empty(); }  // all tokens are wanted
};

}  // namespace quire
