#pragma once
// What lies where in the workspace of mla_prompt_attention(): what its plan takes is what it uses.

#include <cstddef>

#include "backend/ops_latent.h"
#include "cpu/kernels/kernels.h"

namespace quire::cpu {

// Positions whose keys and values are there at a time: what one softmax state is made of, so that
// the bits do not depend on what else there is.
inline constexpr std::int64_t kLatentPiece = kAttentionSegment;

struct LatentWorkspace {
  LatentWorkspace(std::int64_t num_tokens, const LatentShape& shape) {
    const auto element = static_cast<std::int64_t>(size_of(shape.dtype));
    keys = take(kLatentPiece * shape.heads * (shape.nope + shape.rope) * element);
    values = take(kLatentPiece * shape.heads * shape.value * element);
    rows = take(kLatentPiece * (shape.latent + shape.rope) * std::int64_t{sizeof(float)});
    states = take(num_tokens * shape.heads * (shape.value + 2) * std::int64_t{sizeof(float)});
  }

  // Offsets in bytes.
  std::size_t keys, values;  // [heads, kLatentPiece, width] each
  std::size_t rows;          // [kLatentPiece, latent + rope] of the cache, as products read them
  std::size_t states;        // f32 [num_tokens, heads, value + 2] of prompts of several pieces
  std::size_t bytes = 0;     // of all

 private:
  std::size_t take(std::int64_t count) {
    const std::size_t begin = bytes;
    bytes += (static_cast<std::size_t>(count) + 63) / 64 * 64;
    return begin;
  }
};

}  // namespace quire::cpu
