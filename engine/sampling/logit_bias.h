#pragma once
// What a step adds to single logits: collected on the host, applied on the device. Engine thread
// only.

#include <cstdint>
#include <vector>

#include "backend/ops.h"
#include "base/ids.h"
#include "engine/sampling/list_pieces.h"

namespace quire {

class LogitBias {
 public:
  void begin_step();
  void add(int row, TokenId token, float bias);  // −inf forbids
  bool empty() const { return rows_.empty(); }
  // logits f32 [S, V] in place.
  void apply(Ops& ops, ListPieces& pieces, TensorView logits, StreamRef stream) const;

 private:
  std::vector<std::int32_t> rows_, tokens_;
  std::vector<float> values_;
};

}  // namespace quire
