#pragma once
// Copies of boxes of a tensor to shared memory by the tensor memory accelerator: one thread starts
// a box, nobody computes addresses, and the bytes arrive at a barrier. A map (cuda/runtime/
// tensor_map.h) says where the tensor is, how large a box is and how it lies in shared memory; what
// of a box is outside of the tensor becomes zeros and counts as arrived. PTX ISA,
// cp.async.bulk.tensor.
//
// A map is a member of a __grid_constant__ parameter.

#include <cuda.h>

#include "cuda/device/mbarrier.cuh"

#ifdef __CUDACC__
namespace quire::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// Ahead of the first box, so that it does not wait for the map.
__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(&map) : "memory");
}
// The box that begins at these coordinates, the innermost first, two to four as the map has
// dimensions. `to` is a multiple of 128 bytes.
template <class... Index>
__device__ __forceinline__ void load_box(void* to, const CUtensorMap& map, Mbarrier& full,
                                         Index... index) {
  constexpr int kRank = sizeof...(Index);
  static_assert(kRank >= 2 && kRank <= 4);
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  const int c[] = {index...};
#define QUIRE_BOX(rank, coordinates)                                                   \
  "cp.async.bulk.tensor." rank                                                         \
  ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {" coordinates \
  "}], [%2];\n"
  if constexpr (kRank == 2) {
    asm volatile(QUIRE_BOX("2d", "%3, %4")::"r"(at), "l"(&map), "r"(barrier_address(full)),
                 "r"(c[0]), "r"(c[1])
                 : "memory");
  } else if constexpr (kRank == 3) {
    asm volatile(QUIRE_BOX("3d", "%3, %4, %5")::"r"(at), "l"(&map), "r"(barrier_address(full)),
                 "r"(c[0]), "r"(c[1]), "r"(c[2])
                 : "memory");
  } else {
    asm volatile(QUIRE_BOX("4d", "%3, %4, %5, %6")::"r"(at), "l"(&map), "r"(barrier_address(full)),
                 "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3])
                 : "memory");
  }
#undef QUIRE_BOX
}
#else
__device__ __forceinline__ void prefetch_map(const CUtensorMap&) {}
template <class... Index>
__device__ __forceinline__ void load_box(void*, const CUtensorMap&, Mbarrier&, Index...) {}
#endif

}  // namespace quire::cuda
#else
#include <cuda_emulation/tma.h>
#endif
