#pragma once
// A kernel started by launch_dependent() may begin while the one before it in its stream ends: it
// fetches what no kernel writes (weights), then waits. PTX ISA, griddepcontrol; on Hopper,
// elsewhere kernels follow each other.

#include "cuda/device/kernel.cuh"

namespace quire::cuda {

// Before the first access to what an earlier kernel writes, and before the first write.
__device__ __forceinline__ void await_previous_kernel() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}
// The kernel behind may begin, once all blocks have come here or ended. It still waits for the end
// of this one before it reads or writes.
__device__ __forceinline__ void release_next_kernel() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

}  // namespace quire::cuda
