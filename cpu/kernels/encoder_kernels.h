#pragma once
// Kernels of encoders, as kernels.h has those of decoders: a table per instruction set.

#include "cpu/kernels/kernels.h"

namespace quire::cpu {

struct LayerNormArgs {
  Rows out, x;
  const void *weight, *bias;  // [width], both of one type
  Float weight_type;
  std::int64_t width;
  float eps;
};

struct EncoderAttentionLoop {
  Rows out, q, k, v;  // [T, heads, head_dim]; q, k and v of one type
  const std::int32_t* query_start;
  std::int64_t heads, head_dim;
  float scale;
};

struct EncoderKernels {
  void (*layer_norm)(const LayerNormArgs&, std::int64_t begin, std::int64_t end);
  void (*gelu)(const Rows& x, std::int64_t width, std::int64_t begin, std::int64_t end);
  // One head of one request, queries [begin, end). scratch: 2 · head_dim · L + kEncoderRows ·
  // (L + head_dim) floats, L the request's tokens rounded up to 16.
  void (*attention)(const EncoderAttentionLoop&, std::int64_t request, std::int64_t head,
                    std::int64_t begin, std::int64_t end, float* scratch);
};

inline constexpr std::int64_t kEncoderRows = 4;  // queries that share what is loaded of keys

const EncoderKernels& encoder_kernels_portable();
const EncoderKernels& encoder_kernels_avx2();
const EncoderKernels& encoder_kernels_avx512();

}  // namespace quire::cpu
