#include "engine/kv_transfer/blocks/regions.h"

#include <algorithm>
#include <optional>

namespace quire {

BlockRegions block_regions(std::span<const int> group_of_layer) {
  BlockRegions regions;
  regions.group_of_layer.assign(group_of_layer.begin(), group_of_layer.end());
  std::vector<std::size_t> seen;                           // layers of each group so far
  std::vector<std::optional<std::size_t>> region_of_slot;  // the k-th layers'
  for (const int group : group_of_layer) {
    const auto g = static_cast<std::size_t>(group);
    seen.resize(std::max(seen.size(), g + 1));
    const std::size_t slot = seen[g]++;
    region_of_slot.resize(std::max(region_of_slot.size(), slot + 1));
    if (!region_of_slot[slot]) region_of_slot[slot] = regions.num_regions++;
    regions.region_of_layer.push_back(*region_of_slot[slot]);
  }
  regions.num_groups = seen.size();
  return regions;
}

}  // namespace quire
