#pragma once
// What the ranks of a tensor-parallel engine do together. Each rank calls the same, in the same
// order, with tensors of the same sizes, and waits for the others. Throws Failure when one of them
// is gone.

#include "backend/device.h"
#include "backend/tensor.h"

namespace quire {

class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual int rank() const = 0;  // 0 is the engine's own
  virtual int size() const = 0;

  // x f32, dense, in place: the sum over ranks, the same bits on each of them. On a CPU it is made
  // in the order of ranks: a number of them gives the same bits every time.
  virtual void all_reduce(TensorView x, StreamRef stream) = 0;
  // out f32 [S, N] = the ranks' parts side by side, all `width` wide but for the last ones, which end
  // with N; absent (empty()) on ranks that have no use for it. part f32 [S, ≤ width].
  virtual void gather_columns(TensorView out, TensorView part, std::int64_t width,
                              StreamRef stream) = 0;
  // x of four bytes an element, dense, in place: rank 0's.
  virtual void broadcast(TensorView x, StreamRef stream) = 0;

  // Any thread: a rank is gone. What waits for it on a device ends, and what is in tensors is void.
  virtual void abort() = 0;
};

}  // namespace quire
