#pragma once
// Activation functions; the formulas are backend/ops.h's.

#include "backend/ops.h"
#include "cuda/device/kernel.cuh"

namespace quire::cuda {

// Two units in the last place; 0 where 1 + e^−x is beyond 2¹²⁶.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }

__device__ __forceinline__ float activate(Activation kind, float x) {
  switch (kind) {
    case Activation::silu:
      return x * sigmoid(x);
    case Activation::gelu_tanh:
      return 0.5f * x * (1.f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    case Activation::relu2:
      return x > 0.f ? x * x : 0.f;
    case Activation::clamped_swiglu:
      break;  // has no form without its partner
  }
  return x;
}

// act(gate) · up; gpt-oss: both clamped, the partner raised by one.
__device__ __forceinline__ float activate_gated(Activation kind, float gate, float up,
                                                float alpha = 1.702f, float limit = 7.f) {
  if (kind != Activation::clamped_swiglu) return activate(kind, gate) * up;
  gate = fminf(gate, limit);
  up = fminf(fmaxf(up, -limit), limit);
  return gate * sigmoid(alpha * gate) * (up + 1.f);
}

}  // namespace quire::cuda
