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

// Tokens of a tile: few where experts have few, so that little of a tile is empty.
constexpr int kFewTileTokens = 16, kManyTileTokens = 64;

inline int max_tiles(std::int64_t pairs, std::int64_t experts, int tile_tokens) {
  return static_cast<int>((pairs + std::min(pairs, experts) * (tile_tokens - 1)) / tile_tokens);
}

// Where the pieces begin.
struct ExpertScratch {
  std::size_t tiles, num_tiles, pairs, inner, answers, bytes;

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
    answers = take(num_pairs * shape.hidden, sizeof(float));
    bytes = at;
  }
};

}  // namespace quire::cuda
