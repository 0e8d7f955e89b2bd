#pragma once

#include "cuda/device/kernel.cuh"

namespace quire::cuda {

// log(1 + eˣ), as the recurrent layers discretise their steps.
__device__ __forceinline__ float softplus(float x) { return x > 20.f ? x : log1pf(expf(x)); }

}  // namespace quire::cuda
