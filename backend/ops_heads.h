#pragma once
// What happens to the heads of queries, keys and values between their products and attention.

#include <cstdint>

#include "backend/tensor.h"

namespace quire {

enum class RopeStyle : std::uint8_t {
  halves,       // pairs (i, i + dim/2), GPT-NeoX and Hugging Face
  interleaved,  // pairs (2i, 2i + 1), GPT-J and DeepSeek
};

// Elements of an fp8_e4m3 cache are multiplied by this when read, and divided by it before they are
// rounded (saturating) when written. 1 for a cache of any other dtype.
struct CacheScale {
  float k = 1.f, v = 1.f;
};

// All of it in one pass: queries and keys are normed over D (rms_norm), their first dims rotated
// (rope), keys and values put into their slots (kv_write), each rounded where that operator rounds.
// Queries change in place; what is left in k is undefined.
struct HeadArgs {
  TensorView q;               // [T, heads, D], rows may be strided
  TensorView k, v;            // [T, kv_heads, D], likewise
  TensorView q_norm, k_norm;  // [D], both or neither
  float norm_eps = 0.f;
  float norm_offset = 0.f;  // added to the weights
  TensorView positions;     // i32 [T]
  TensorView cos_sin;       // f32 [max position, rotary], optional
  RopeStyle style = RopeStyle::halves;
  TensorView k_cache, v_cache;  // as AttentionArgs has them
  TensorView slots;             // i64 [T], −1: skip
  CacheScale cache_scale = {};
};

}  // namespace quire
