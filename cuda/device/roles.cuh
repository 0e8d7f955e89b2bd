#pragma once
// Warps with roles of their own: where some of a block's warps meet, and registers that one
// warpgroup gives and others take.

#include "cuda/device/kernel.cuh"

#ifdef __CUDACC__
namespace quire::cuda {

// Barriers 1 to 15 of a block (0 is __syncthreads). A phase ends when `threads`, a multiple of 32,
// have come; who arrives goes on at once.
__device__ __forceinline__ void meet_at(int id, int threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_at(int id, int threads) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

// One lane of a warp, all of whose lanes ask.
__device__ __forceinline__ bool is_elected() {
  std::uint32_t elected;
  asm volatile(
      "{.reg .pred p; .reg .b32 lane; elect.sync lane|p, 0xffffffff; selp.u32 %0, 1, 0, p;}\n"
      : "=r"(elected));
  return elected != 0;
}

// From here on each thread of the warpgroup, all of which come here, has so many registers, a
// multiple of 8. PTX ISA, setmaxnreg.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
#else
template <int kRegisters>
__device__ __forceinline__ void give_registers() {}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {}
#endif

}  // namespace quire::cuda
#else
#include <cuda_emulation/roles.h>
#endif
