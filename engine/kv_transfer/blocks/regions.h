#pragma once
// Which layers share a region of memory, and which are filled by the same list of blocks: as vLLM
// lays its cache out. The k-th layers of all groups share one tensor, and tensors are told in the
// order of their first layers. Pure.

#include <cstddef>
#include <span>
#include <vector>

namespace quire {

struct BlockRegions {
  std::vector<int> group_of_layer;
  std::vector<std::size_t> region_of_layer;
  std::size_t num_regions = 0;
  std::size_t num_groups = 0;
};

// By layer, in the model's order; groups are counted from 0.
BlockRegions block_regions(std::span<const int> group_of_layer);

}  // namespace quire
