#pragma once
// How mla_prompt_attention() divides its workspace. No CUDA header in here: the plan asks for the
// size on machines without.

#include <cstddef>
#include <cstdint>

#include "backend/ops_latent.h"

namespace quire::cuda {

// Of a head: what its kernels take, which is what models have.
constexpr int kExpandedNope = 128, kExpandedRope = 64, kExpandedValue = 128;
constexpr int kExpandedKey = kExpandedNope + kExpandedRope;
constexpr int kExpandedHead = kExpandedNope + kExpandedValue;
// Of a row's softmax state: values, maximum, sum, and so many that the next is aligned.
constexpr int kExpandedState = kExpandedValue + 4;

// Positions whose keys and values are there at a time.
constexpr std::int32_t kExpandedPositions = 4096;

inline bool suits_expansion(const LatentShape& s) {
  return (s.dtype == DType::bf16 || s.dtype == DType::f16) && s.nope == kExpandedNope &&
         s.rope == kExpandedRope && s.value == kExpandedValue && s.latent % 8 == 0;
}

// Where the pieces begin. Less than absorbing as many tokens takes from about 1,500 tokens on.
struct LatentScratch {
  std::size_t rows;   // [kExpandedPositions, latent + rope] of the cache, as the product reads them
  std::size_t heads;  // [kExpandedPositions, heads, nope + value]: keys but for what is rotated
  std::size_t states;  // f32 [heads, num_tokens, kExpandedState] of prompts of several pieces
  std::size_t bytes = 0;

  LatentScratch(std::int64_t num_tokens, const LatentShape& shape) {
    const auto take = [this](std::int64_t count, std::size_t size) {
      const std::size_t begin = bytes;
      bytes += (static_cast<std::size_t>(count) * size + 255) / 256 * 256;
      return begin;
    };
    const std::size_t element = size_of(shape.dtype);
    rows = take(kExpandedPositions * (shape.latent + shape.rope), element);
    heads = take(kExpandedPositions * shape.heads * (shape.nope + shape.value), element);
    states = take(num_tokens * shape.heads * kExpandedState, sizeof(float));
  }
};

}  // namespace quire::cuda
