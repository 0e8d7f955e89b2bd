#pragma once
// Which block of state each request of a step reads and writes (backend/ops_state.h).

#include "backend/tensor.h"
#include "cuda/device/kernel.cuh"

namespace quire::cuda {

// Tokens [first, last) of the step; blocks are −1 for none.
struct StateStep {
  int first, last, read, write;
};

struct StateSteps {
  const std::int32_t *query_start, *state_read, *state_write;

  StateSteps(const TensorView& starts, const TensorView& reads, const TensorView& writes)
      : query_start(static_cast<const std::int32_t*>(starts.data())),
        state_read(static_cast<const std::int32_t*>(reads.data())),
        state_write(static_cast<const std::int32_t*>(writes.data())) {}

  __device__ __forceinline__ StateStep operator()(int request) const {
    return {query_start[request], query_start[request + 1], state_read[request],
            state_write[request]};
  }
};

}  // namespace quire::cuda
