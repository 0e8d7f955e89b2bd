#include "engine/kv_offload/block_pages.h"

#include <algorithm>

namespace quire {

BlockPages::BlockPages(Device& device, std::span<const LayerCache> layers) : device_(device) {
  for (const LayerCache& layer : layers) {
    const auto group = static_cast<std::size_t>(layer.group);
    if (group >= groups_.size()) groups_.resize(group + 1);
    auto* const base = static_cast<std::byte*>(layer.base);
    if (std::ranges::find(groups_[group].layers, base, &Pages::base) != groups_[group].layers.end())
      continue;
    groups_[group].layers.push_back({base, layer.page_bytes});
    groups_[group].bytes += layer.page_bytes;
  }
}

void BlockPages::read(int group, BlockId block, std::byte* out) {
  for (const Pages& pages : groups_[static_cast<std::size_t>(group)].layers) {
    device_.copy(out, pages.base + static_cast<std::size_t>(block) * pages.page_bytes,
                 pages.page_bytes, device_.stream());
    out += pages.page_bytes;
  }
}

void BlockPages::write(int group, BlockId block, const std::byte* bytes) {
  for (const Pages& pages : groups_[static_cast<std::size_t>(group)].layers) {
    device_.copy(pages.base + static_cast<std::size_t>(block) * pages.page_bytes, bytes,
                 pages.page_bytes, device_.stream());
    bytes += pages.page_bytes;
  }
}

}  // namespace quire
