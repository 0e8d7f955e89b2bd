#pragma once
// Prompts of recurrent layers in chunks of tokens, on tensor cores (delta_chunks.cu,
// scan_chunks.cu), and what they leave to the loops over tokens (delta_net.cu, ssm.cu).

#include "cuda/cuda_traits.h"
#include "cuda/device/state_steps.cuh"
#include "cuda/kernels/launchers.h"

namespace quire::cuda {

// The chunks of a request's tokens: as many as are whole, from the first on, if the state behind
// them has a place.
__host__ __device__ inline int tokens_in_chunks(const StateStep& step) {
  return step.write < 0 ? 0 : (step.last - step.first) / kStateChunk * kStateChunk;
}

// What is left behind the chunks, if there were any.
__device__ __forceinline__ StateStep behind_chunks(StateStep step, bool after_chunks) {
  const int done = after_chunks ? tokens_in_chunks(step) : 0;
  if (done > 0) step.read = step.write;
  step.first += done;
  return step;
}

// Advance the states of all requests that have a whole chunk by their chunks. False: nothing was
// done, for the operator's sizes or the device's.
bool delta_rule_chunks(const DeltaRuleArgs& args, StreamRef stream);
bool selective_scan_chunks(const ScanArgs& args, StreamRef stream);

}  // namespace quire::cuda
