#pragma once
// What encoders ask beside Ops, in the same style; only some backends have it: a backend's Ops is
// also an EncoderOps where it has. Shapes: [T] tokens, [R] requests.

#include "backend/device.h"
#include "backend/ops.h"
#include "backend/tensor.h"

namespace quire {

// Attention without a cache: every query of request r sees all keys of r.
struct EncoderAttentionArgs {
  TensorView out;          // [T, heads, head_dim]
  TensorView q, k, v;      // [T, heads, head_dim], rows may be strided
  TensorView query_start;  // i32 [R + 1]
  float scale = 1.f;
};

class EncoderOps {
 public:
  virtual ~EncoderOps() = default;

  // out = (x − mean) / sqrt(var + eps) · weight + bias over the last dimension; x [T, H], as out or
  // f32; out may be x.
  virtual void layer_norm(TensorView out, TensorView x, TensorView weight, TensorView bias,
                          float eps, StreamRef stream) = 0;
  // x · Φ(x), with erf, in place.
  virtual void gelu(TensorView x, StreamRef stream) = 0;
  virtual void encoder_attention(const EncoderAttentionArgs& args, StreamRef stream) = 0;
};

}  // namespace quire
