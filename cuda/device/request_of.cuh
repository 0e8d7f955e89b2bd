#pragma once
// Which request a token of the step belongs to.

#include "cuda/device/kernel.cuh"

namespace quire::cuda {

// The last request that begins at or before token.
__device__ __forceinline__ int request_of(const std::int32_t* query_start, int num_requests,
                                          int token) {
  int low = 0, high = num_requests - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (query_start[middle] <= token) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace quire::cuda
