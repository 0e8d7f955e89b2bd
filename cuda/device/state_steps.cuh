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
  const std::int32_t* token_states;  // null: none

  // Of any of the recurrent operators.
  template <class Args>
  explicit StateSteps(const Args& args)
      : query_start(static_cast<const std::int32_t*>(args.query_start.data())),
        state_read(static_cast<const std::int32_t*>(args.state_read.data())),
        state_write(static_cast<const std::int32_t*>(args.state_write.data())),
        token_states(args.token_states.empty()
                         ? nullptr
                         : static_cast<const std::int32_t*>(args.token_states.data())) {}

  // The block that takes the state after this token; −1: none does.
  __device__ __forceinline__ int kept_after(int token) const {
    return token_states == nullptr ? -1 : token_states[token];
  }

  __device__ __forceinline__ StateStep operator()(int request) const {
    return {query_start[request], query_start[request + 1], state_read[request],
            state_write[request]};
  }
};

}  // namespace quire::cuda
