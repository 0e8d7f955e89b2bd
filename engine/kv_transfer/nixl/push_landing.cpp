#include "engine/kv_transfer/nixl/push_landing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/kv_nixl/block_ids.h"
#include "engine/kv_transfer/blocks/shape.h"
#include "engine/kv_transfer/blocks/state_layout.h"
#include "engine/kv_transfer/blocks/sum_seed.h"
#include "engine/kv_transfer/content/checksum.h"

namespace quire {
namespace {

// Rows that the next token sees, and none beside them: the other side's blocks are others.
KvGeometry by_rows(KvGeometry geometry) {
  for (KvLayerGeometry& layer : geometry.layers) layer.block_size = 1;
  return geometry;
}

}  // namespace

NixlPushLanding::NixlPushLanding(const NixlSelf& self, int block_size, int num_tokens, int from)
    : self_(self),
      block_size_(block_size),
      ratio_(block_shape(self.geometry, self.regions, block_size).ratio),
      content_(kv_content(by_rows(self.geometry), num_tokens, from)) {
  const int size = block_size * ratio_;
  const int total = (num_tokens + size - 1) / size;
  first_block_.assign(self.regions.num_groups, total);
  for (const KvStrip& strip : content_.strips) {
    const auto layer = static_cast<std::size_t>(strip.layer);
    int& begin = first_block_[static_cast<std::size_t>(self.regions.group_of_layer[layer])];
    if (strip.rows > 0) begin = std::min(begin, strip.first / size);
  }
  for (const int begin : first_block_) counts_.push_back(total - begin);
}

int NixlPushLanding::num_blocks() const {
  return std::accumulate(counts_.begin(), counts_.end(), 0);
}

// Without those behind the prompt.
std::vector<std::int64_t> NixlPushLanding::blocks_of(std::size_t group,
                                                     std::span<const std::int64_t> ids) const {
  std::vector<std::int64_t> blocks = kernel_blocks(ids, ratio_, false);
  const std::size_t most = holds_state(self_.geometry, self_.regions, group)
                               ? 1
                               : static_cast<std::size_t>(std::max(
                                     0, (content_.num_tokens + block_size_ - 1) / block_size_ -
                                            first_block_[group] * ratio_));
  blocks.resize(std::min(blocks.size(), most));
  return blocks;
}

std::span<const std::byte> NixlPushLanding::bytes_at(const NixlSlots& slots, std::size_t layer,
                                                     std::int64_t id) const {
  const std::size_t region = self_.regions.region_of_layer[layer];
  const KvLayerGeometry& geometry = self_.geometry.layers[layer];
  return geometry.is_state() ? slots.state(region, id, geometry.row_bytes)
                             : slots.block(region, id);
}

void NixlPushLanding::check_sums(const NixlSlots& slots, const NixlSlots::Blocks& blocks,
                                 std::string_view request) const {
  const std::uint64_t seed = block_sum_seed(request);
  for (std::size_t group = 0; group < blocks.size(); ++group) {
    for (const std::int64_t id : blocks_of(group, blocks[group])) {
      std::uint64_t sum = seed;
      for (std::size_t i = 0; i < self_.geometry.layers.size(); ++i)
        if (self_.regions.group_of_layer[i] == static_cast<int>(group))
          sum = kv_checksum(bytes_at(slots, i, id), sum);
      if (sum != slots.sum(id))
        throw KvLost(KvLossReason::corrupt,
                     fmt::format("block {} has another sum than was written", id));
    }
  }
}

void NixlPushLanding::fill(const NixlSlots& slots, const NixlSlots::Blocks& blocks,
                           std::span<std::byte> bytes) const {
  for (std::size_t layer = 0; layer < self_.geometry.layers.size(); ++layer) {
    const auto group = static_cast<std::size_t>(self_.regions.group_of_layer[layer]);
    const KvLayerGeometry& geometry = self_.geometry.layers[layer];
    BlockPlace place{.layer = layer,
                     .first_token = first_block_[group] * block_size_ * ratio_,
                     .num_tokens = block_size_,
                     .first_head = 0,
                     .num_heads = geometry.heads,
                     .order = self_.order()};
    for (const std::int64_t id : blocks_of(group, blocks[group])) {
      const std::span<const std::byte> block = bytes_at(slots, layer, id);
      if (geometry.is_state()) {
        const auto strip =
            std::ranges::find(content_.strips, static_cast<int>(layer), &KvStrip::layer);
        block_to_state(geometry.state, block,
                       bytes.subspan(static_cast<std::size_t>(strip->offset), block.size()));
      } else {
        block_to_content(self_.geometry, place, block, content_, bytes);
      }
      place.first_token += block_size_;
    }
  }
}

}  // namespace quire
