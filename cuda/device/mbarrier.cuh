#pragma once
// Barriers in shared memory that threads and copies arrive at, for warps with roles of their own: a
// phase ends when all arrivals have come and as many bytes have landed as were expected. The phases
// of a barrier have the parities 0, 1, 0, …; waiting for the parity before the first returns at
// once. PTX ISA, mbarrier.
//
//   if (threadIdx.x == 0) { init_barrier(full, 1); init_barrier(empty, consumers);
//                           fence_async_proxy(); }
//   __syncthreads();
//   one thread brings:  await_phase(empty, parity ^ 1); arrive_expecting(full, bytes);
//                       load_box(to, map, full, …);               (cuda/device/tma.cuh)
//   consumers:          await_phase(full, parity); …; arrive(empty);

#include "cuda/device/kernel.cuh"

namespace quire::cuda {

struct alignas(8) Mbarrier {
  std::uint64_t state;
};

}  // namespace quire::cuda

#ifdef __CUDACC__
namespace quire::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ __forceinline__ std::uint32_t barrier_address(const Mbarrier& barrier) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(&barrier));
}
// By one thread, which fences (fence_async_proxy) before the block meets.
__device__ __forceinline__ void init_barrier(Mbarrier& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier_address(barrier)),
               "r"(arrivals)
               : "memory");
}
__device__ __forceinline__ void arrive(Mbarrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier_address(barrier))
               : "memory");
}
// Arrives, and has the phase wait for so many bytes. A barrier counts up to 2^20 - 1 of them, which
// is more than a block's shared memory holds.
__device__ __forceinline__ void arrive_expecting(Mbarrier& barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier_address(barrier)),
      "r"(bytes)
      : "memory");
}
// Until a phase of this parity has ended, if the one under way has it.
__device__ __forceinline__ void await_phase(const Mbarrier& barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred ended;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
      "@ended bra done;\n"
      "bra again;\n"
      "done:\n"
      "}\n" ::"r"(barrier_address(barrier)),
      "r"(parity)
      : "memory");
}
#else  // kernels for older devices, which do not call them
__device__ __forceinline__ void init_barrier(Mbarrier&, int) {}
__device__ __forceinline__ void arrive(Mbarrier&) {}
__device__ __forceinline__ void arrive_expecting(Mbarrier&, int) {}
__device__ __forceinline__ void await_phase(const Mbarrier&, int) {}
#endif

}  // namespace quire::cuda
#else
#include <cuda_emulation/mbarrier.h>
#endif
