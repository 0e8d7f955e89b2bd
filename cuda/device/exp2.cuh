#pragma once
// 2^x by the special function unit: relative error 2⁻²², results below 2⁻¹²⁶ are 0. PTX ISA, ex2.

#include "cuda/device/kernel.cuh"

namespace quire::cuda {

__device__ __forceinline__ float exp2_approximate(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

}  // namespace quire::cuda
