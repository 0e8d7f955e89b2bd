#pragma once
// How attention over an fp8 cache divides its workspace. No CUDA header in here: the plan asks for
// the size on machines without.

#include <algorithm>
#include <cstdint>

#include "backend/ops_traits.h"
#include "cuda/kernels/widened.h"

namespace quire::cuda {

// What can be widened: heads as warpgroups take them.
inline bool suits_widening(const AttentionShape& s) {
  return s.cache == DType::fp8_e4m3 && (s.dtype == DType::bf16 || s.dtype == DType::f16) &&
         (s.head_dim == 64 || s.head_dim == 96 || s.head_dim == 128 || s.head_dim == 256);
}

// Of one KV head: keys and values, two bytes an element.
inline std::int64_t widened_page_bytes(std::int64_t head_dim) {
  return 2 * kWidenedKeys * head_dim * 2;
}
// Of the first so many keys.
inline std::int64_t widened_pages(std::int64_t keys) {
  return (keys + kWidenedKeys - 1) / kWidenedKeys;
}

// The longest request with all of its heads, if that is not too much; but always with one of them.
// More goes in rounds.
inline std::int64_t widened_bytes(const AttentionShape& s) {
  constexpr std::int64_t kMost = std::int64_t{128} << 20;
  if (!suits_widening(s)) return 0;
  const std::int64_t head = widened_pages(s.max_len) * widened_page_bytes(s.head_dim);
  return s.max_len == 0 ? kMost : std::min(s.kv_heads * head, std::max(kMost, head));
}

}  // namespace quire::cuda
