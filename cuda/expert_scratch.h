#pragma once
// How moe_experts() divides its workspace. No CUDA header in here: the plan asks for the size on
// machines without.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backend/ops_moe.h"

namespace quire::cuda {

// Of the sorted pairs [begin, end), all of one expert.
struct ExpertTile {
  std::int32_t expert, begin, end;
};

// Tokens of a tile: few where experts have few, so that little of a tile is empty; some where many
// do not fit (fragment_tile_tokens). Prompts': of warpgroups.
constexpr int kFewTileTokens = 16, kSomeTileTokens = 48, kManyTileTokens = 64,
              kPromptTileTokens = 128;

inline int max_tiles(std::int64_t pairs, std::int64_t experts, int tile_tokens) {
  return static_cast<int>((pairs + std::min(pairs, experts) * (tile_tokens - 1)) / tile_tokens);
}

// Where the pieces begin. fp8: of x, where answers will be, and of inner, each with its scales.
struct ExpertScratch {
  std::size_t tiles, num_tiles, pairs, inner, inner_codes, inner_scales, answers, x_scales, bytes;

  ExpertScratch(std::int64_t num_pairs, const MoeShape& shape) {
    std::size_t at = 0;
    const auto take = [&at](std::int64_t count, std::size_t size) {
      const std::size_t begin = at;
      at += (static_cast<std::size_t>(count) * size + 63) / 64 * 64;
      return begin;
    };
    tiles = take(max_tiles(num_pairs, shape.experts, kFewTileTokens), sizeof(ExpertTile));
    num_tiles = take(1, sizeof(std::int32_t));
    pairs = take(num_pairs, sizeof(std::int32_t));
    inner = take(num_pairs * shape.intermediate, size_of(shape.dtype));
    const auto groups = [](std::int64_t depth) { return (depth + kFp8Block - 1) / kFp8Block; };
    const bool fp8 = shape.fp8 && shape.dtype != DType::f32;
    inner_codes = take(fp8 ? num_pairs * shape.intermediate : 0, 1);
    inner_scales = take(fp8 ? num_pairs * groups(shape.intermediate) : 0, sizeof(float));
    answers = take(num_pairs * shape.hidden, size_of(shape.dtype));
    const std::size_t end = at;
    at = answers;
    if (fp8) take(num_pairs / shape.top_k * shape.hidden, 1);
    x_scales = at;
    if (fp8) take(num_pairs / shape.top_k * groups(shape.hidden), sizeof(float));
    bytes = std::max(at, end);
  }
};

}  // namespace quire::cuda
