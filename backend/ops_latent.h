#pragma once
// Arguments of latent attention (DeepSeek-V2, arXiv 2405.04434) in its two forms. A token's cache
// row is its latent, then its rotated key, for all heads. Absorbed, the projections from latents to
// keys and values are part of queries and outputs, and rows are attended to as they are; expanded,
// rows become keys and values of each head first.

#include <cstdint>
#include <span>

#include "backend/tensor.h"

namespace quire {

// Absorbed. Score = scale · q · row, value = the row's latent. Queries and mask as in
// AttentionArgs.
struct MlaArgs {
  TensorView out;           // [T, heads, latent]
  TensorView q;             // [T, heads, latent + rope], rows may be strided
  TensorView cache;         // [blocks, block_size, latent + rope], block stride may be padded
  TensorView block_table;   // i32 [R, columns]
  TensorView query_start;   // i32 [R + 1]
  TensorView seq_lens;      // i32 [R]
  float cache_scale = 1.f;  // CacheScale::k
  float scale = 1.f;
  int max_query_len = 0;
  int max_seq_len = 0;
};

// What a layer has of heads, and how wide these are.
struct LatentShape {
  std::int64_t heads = 0, latent = 0, rope = 0;
  std::int64_t nope = 0;  // of a key, what is not rotated
  std::int64_t value = 0;
  DType dtype = DType::bf16;
};

// New tokens of a request, and what it had before them.
struct LatentPrompt {
  std::int32_t request = 0;  // row of the step
  std::int32_t first_token = 0, num_tokens = 0, num_cached = 0;

  std::int32_t seq_len() const { return num_cached + num_tokens; }
};

// Expanded, for these of the step's requests; of the other tokens nothing is read or written. Score
// = scale · q · key of the head, which ends with the rotated key of all heads.
struct MlaPromptArgs {
  TensorView out;    // [T, heads, value], rows may be strided
  TensorView q;      // [T, heads, nope + rope], rows may be strided
  TensorView up;     // [heads, nope + value, latent]: of keys, then of values
  TensorView cache;  // as in MlaArgs, down to seq_lens
  TensorView block_table;
  TensorView query_start;
  TensorView seq_lens;
  std::span<const LatentPrompt> prompts;  // on the host
  TensorView workspace;                   // u8 [OpsTraits::latent_prompt_bytes()]
  float cache_scale = 1.f;
  float scale = 1.f;
};

// What expanding costs a backend beside its multiplications: new tokens are computed by so many,
// and all that absorbing has not takes so many times as long.
struct ExpansionCost {
  int unit_tokens = 1;
  double times = 1;
};

// Whether a request's new tokens are to be expanded: where that takes fewer multiplications. Of a
// head, with n new tokens behind c others and pairs = n · c + n · (n + 1) / 2 of query and key:
//   absorbed: pairs · (2 · latent + rope) + n · latent · (nope + value)
//   expanded: pairs · (nope + rope + value) + (n + c) · latent · (nope + value)
constexpr bool takes_less_expanded(const LatentShape& shape, std::int64_t num_new,
                                   std::int64_t num_cached, const ExpansionCost& cost = {}) {
  const auto pairs_of = [&](std::int64_t rows) {
    return static_cast<double>(rows) *
           (static_cast<double>(num_cached) + static_cast<double>(num_new + 1) / 2);
  };
  const std::int64_t unit = cost.unit_tokens, rows = (num_new + unit - 1) / unit * unit;
  const auto row = static_cast<double>(2 * shape.latent + shape.rope);
  const auto head = static_cast<double>(shape.nope + shape.rope + shape.value);
  const auto expansion = static_cast<double>(shape.latent * (shape.nope + shape.value));
  const double expanded = pairs_of(rows) * head + static_cast<double>(num_cached) * expansion;
  return pairs_of(num_new) * row > cost.times * expanded;
}

}  // namespace quire
