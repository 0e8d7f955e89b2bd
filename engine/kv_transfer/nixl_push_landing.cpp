#include "engine/kv_transfer/nixl_push_landing.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/kv_transfer/checksum.h"
#include "engine/kv_transfer/nixl_exports.h"

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
      content_(kv_content(by_rows(self.geometry), num_tokens, from)) {
  const int total = (num_tokens + block_size - 1) / block_size;
  first_block_.assign(self.regions.num_groups, total);
  for (const KvStrip& strip : content_.strips) {
    const auto layer = static_cast<std::size_t>(strip.layer);
    int& begin = first_block_[static_cast<std::size_t>(self.regions.group_of_layer[layer])];
    if (strip.rows > 0) begin = std::min(begin, strip.first / block_size);
  }
  for (const int begin : first_block_) counts_.push_back(total - begin);
}

int NixlPushLanding::num_blocks() const {
  return std::accumulate(counts_.begin(), counts_.end(), 0);
}

void NixlPushLanding::check_sums(const NixlSlots& slots, const NixlSlots::Blocks& blocks,
                                 std::string_view request) const {
  const std::uint64_t seed = block_sum_seed(request);
  for (std::size_t group = 0; group < blocks.size(); ++group) {
    for (const std::int64_t id : blocks[group]) {
      std::uint64_t sum = seed;
      for (std::size_t i = 0; i < self_.geometry.layers.size(); ++i)
        if (self_.regions.group_of_layer[i] == static_cast<int>(group))
          sum = kv_checksum(slots.block(self_.regions.region_of_layer[i], id), sum);
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
    BlockPlace place{.layer = layer,
                     .first_token = first_block_[group] * block_size_,
                     .num_tokens = block_size_,
                     .first_head = 0,
                     .num_heads = self_.geometry.layers[layer].heads,
                     .order = self_.order()};
    for (const std::int64_t id : blocks[group]) {
      block_to_content(self_.geometry, place, slots.block(self_.regions.region_of_layer[layer], id),
                       content_, bytes);
      place.first_token += block_size_;
    }
  }
}

}  // namespace quire
