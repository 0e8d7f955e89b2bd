#pragma once
// launch() lets a kernel begin while the one in front of it still runs (PTX ISA, griddepcontrol; on
// Hopper, elsewhere kernels follow each other). So every kernel begins so, in its own body and
// before any thread returns:
//
//   release_next_kernel();
//   what no kernel writes may be fetched here, such as weights
//   await_previous_kernel();
//
// Kernels in front end in order only as all of them wait: one that ended without would let what is
// behind it begin while those before it run.

#include "cuda/device/kernel.cuh"

#ifdef __CUDACC__
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
// Brings a line of 128 bytes to the L2 cache.
__device__ __forceinline__ void prefetch_line(const void* constant) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(constant));
}

}  // namespace quire::cuda
#else
namespace quire::cuda {

inline void await_previous_kernel(EMULATION_SITE) {
  const emulation::Site here = EMULATION_HERE("await_previous_kernel");
  emulation::await_previous_kernel(emulation::deleted(here), here);
}
// The emulation lets a kernel begin before the one in front of it has (streams.cpp).
inline void release_next_kernel() {}
inline void prefetch_line(const void* constant) {
  [[maybe_unused]] const volatile char seen = *static_cast<const volatile char*>(constant);
}

}  // namespace quire::cuda
#endif

namespace quire::cuda {

constexpr int kLineBytes = 128;
// By all threads of a block.
template <class T>
__device__ __forceinline__ void prefetch(const T* constants, int count) {
  constexpr int kStep = kLineBytes / static_cast<int>(sizeof(T));
  for (int i = static_cast<int>(threadIdx.x) * kStep; i < count; i += blockDim.x * kStep)
    prefetch_line(constants + i);
}

}  // namespace quire::cuda
