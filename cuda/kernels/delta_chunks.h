#pragma once
// Prompts of the gated delta rule in chunks, on tensor cores (delta_chunks.cu), and what they leave
// to the loop over tokens (delta_net.cu).

#include "cuda/cuda_traits.h"
#include "cuda/device/state_steps.cuh"
#include "cuda/kernels/launchers.h"

namespace quire::cuda {

// The chunks of a request's tokens: as many as are whole, from the first on, if the state behind
// them has a place.
__host__ __device__ inline int tokens_in_chunks(const StateStep& step) {
  return step.write < 0 ? 0 : (step.last - step.first) / kDeltaChunk * kDeltaChunk;
}

// Advances the states of all requests that have a whole chunk by their chunks. False: nothing was
// done, for the operator's sizes or the device's.
bool delta_rule_chunks(const DeltaRuleArgs& args, StreamRef stream);

}  // namespace quire::cuda
