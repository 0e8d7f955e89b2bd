#pragma once
// All blocks of a cooperative launch meet: grid_sync().

#include "cuda/device/kernel.cuh"

#ifdef __CUDACC__
#include <cooperative_groups.h>
namespace quire::cuda {
__device__ __forceinline__ void grid_sync() { cooperative_groups::this_grid().sync(); }
}  // namespace quire::cuda
#else
namespace quire::cuda {
inline void grid_sync(EMULATION_SITE) {
  if (!emulation::deleted(EMULATION_HERE("grid_sync")))
    emulation::grid_barrier(EMULATION_HERE("grid_sync"));
}
}  // namespace quire::cuda
#endif
