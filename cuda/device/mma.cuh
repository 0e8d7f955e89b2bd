#pragma once
// Tensor core instructions of a warp: D += A · B on 16×8×16 tiles of bf16 or f16 with float32 sums,
// and the loads that fill their fragments. Lane t holds row t/4 (+8) and columns 2·(t%4) (+1, +8,
// +9): PTX ISA, mma.m16n8k16.

#include "cuda/device/kernel.cuh"

namespace quire::cuda {

struct FragmentA {
  std::uint32_t r[4];  // 16 × 16, row major
};
struct FragmentB {
  std::uint32_t r[2];  // 16 × 8, column major
};
struct FragmentC {
  float r[4];  // 16 × 8
};

}  // namespace quire::cuda

#ifdef __CUDACC__
namespace quire::cuda {

__device__ __forceinline__ void mma_bf16(FragmentC& d, const FragmentA& a, const FragmentB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
      : "+f"(d.r[0]), "+f"(d.r[1]), "+f"(d.r[2]), "+f"(d.r[3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
}
__device__ __forceinline__ void mma_f16(FragmentC& d, const FragmentA& a, const FragmentB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
      : "+f"(d.r[0]), "+f"(d.r[1]), "+f"(d.r[2]), "+f"(d.r[3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
}
// Four 8×8 matrices of 16-bit elements: lane i passes the address of row i%8 of matrix i/8, 16-byte
// aligned shared memory.
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], const void* row) {
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}

}  // namespace quire::cuda
#else
#include <cuda_emulation/instructions.h>
#endif
