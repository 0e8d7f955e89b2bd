#pragma once
// cp.async: copies from global to shared memory that run beside the threads. Bytes must be 4, 8 or
// 16 and both addresses aligned to that; bytes beyond source_bytes become zero.
//
//   async_copy<16>(&tile[i], global); async_copy_commit(); … async_copy_wait<0>(); __syncthreads();

#include "cuda/device/kernel.cuh"

#ifdef __CUDACC__
namespace quire::cuda {

template <int kBytes>
__device__ __forceinline__ void async_copy(void* shared, const void* global,
                                           int source_bytes = kBytes) {
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(global),
                 "r"(source_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(to), "l"(global),
                 "n"(kBytes), "r"(source_bytes)
                 : "memory");
  }
}
__device__ __forceinline__ void async_copy_commit() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
// Waits until at most kGroupsLeft of this thread's committed groups are under way.
template <int kGroupsLeft>
__device__ __forceinline__ void async_copy_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kGroupsLeft) : "memory");
}

}  // namespace quire::cuda
#else
#include <cuda_emulation/instructions.h>
#endif
