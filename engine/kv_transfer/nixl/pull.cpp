#include "engine/kv_transfer/nixl/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <set>

#include "engine/kv_transfer/blocks/state_layout.h"
#include "engine/kv_transfer/blocks/sum_seed.h"
#include "engine/kv_transfer/content/checksum.h"

namespace quire {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw KvLost(KvLossReason::refused, why); }

KvGeometry with_block_size(KvGeometry geometry, int block_size) {
  for (KvLayerGeometry& layer : geometry.layers) layer.block_size = block_size;
  return geometry;
}

}  // namespace

NixlPull::NixlPull(const NixlSelf& self, Ranks ranks, const KvFetch& fetch)
    : self_(self),
      ranks_(std::move(ranks)),
      key_(fetch.source.prefill.key),
      prompt_hash_(fetch.prompt_hash) {
  if (fetch.source.blocks.size() != self.regions.num_groups)
    refuse(fmt::format("remote_block_ids has {} groups; this model has {}",
                       fetch.source.blocks.size(), self.regions.num_groups));
  const NixlMetadata& metadata = ranks_->front().metadata;
  const int block_size = metadata.block_size * metadata.kernel_blocks_per_block;
  content_ = kv_content(with_block_size(self.geometry, block_size), fetch.num_tokens, fetch.from);
  for (std::size_t i = 0; i < self.geometry.layers.size(); ++i)
    self.geometry.layers[i].is_state() ? add_state(i, fetch) : add_layer(i, fetch);
  if (metadata.quire) add_sums();
}

void NixlPull::check_ids(std::size_t layer, std::span<const std::int64_t> ids) const {
  const NixlMetadata& metadata = ranks_->front().metadata;
  const auto there = num_region_blocks(metadata, self_.regions.region_of_layer[layer]) /
                     static_cast<std::uint64_t>(metadata.kernel_blocks_per_block);
  for (const std::int64_t id : ids)
    if (id < 0 || static_cast<std::uint64_t>(id) >= there)
      refuse(fmt::format("remote_block_ids has {}, which is not one of the peer's {} blocks", id,
                         there));
}

// Ids are told by whole blocks, without those before a window. A block here is the kernel's there.
PairedBlocks NixlPull::paired_blocks(std::size_t layer, const KvStrip& strip,
                                     const KvFetch& fetch) const {
  const NixlMetadata& metadata = ranks_->front().metadata;
  const int ratio = metadata.kernel_blocks_per_block;
  const int size = metadata.block_size;
  const auto blocks_of = [](int tokens, int block) { return (tokens + block - 1) / block; };
  std::span<const std::int64_t> ids =
      fetch.source.blocks[static_cast<std::size_t>(self_.regions.group_of_layer[layer])];
  const int total = blocks_of(fetch.num_tokens, size * ratio);
  ids = ids.first(std::min(ids.size(), static_cast<std::size_t>(total)));
  check_ids(layer, ids);
  const KvLayerGeometry& geometry = self_.geometry.layers[layer];
  const BlockAlignment alignment{.tail = geometry.window > 0 || geometry.chunk > 0,
                                 .local_first = strip.first / size,
                                 .largest_ratio = ratio,
                                 .end = blocks_of(fetch.num_tokens, size)};
  std::vector<std::int64_t> local(
      static_cast<std::size_t>(std::int64_t{total} * ratio - alignment.local_first));
  std::iota(local.begin(), local.end(), std::int64_t{0});
  auto paired = pair_blocks(local, kernel_blocks(ids, ratio, false), alignment);
  if (!paired)
    refuse(fmt::format(
        "remote_block_ids has {} blocks for layer {}; tokens {} to {} take others "
        "({})",
        ids.size(), geometry.name, strip.first, fetch.num_tokens, paired.error().detail));
  for (const std::int64_t block : paired->remote)
    if (block < ratio)
      refuse(fmt::format("remote_block_ids has block 0, which holds nothing, for tokens of {}",
                         geometry.name));
  return std::move(*paired);
}

void NixlPull::add_layer(std::size_t layer, const KvFetch& fetch) {
  const KvLayerGeometry& geometry = self_.geometry.layers[layer];
  const int size = ranks_->front().metadata.block_size;
  const auto strip = std::ranges::find(content_.strips, static_cast<int>(layer), &KvStrip::layer);
  if (strip->rows == 0) return;
  Landing landing{.layer = layer,
                  .first_token = strip->first / size * size,
                  .at = landing_bytes_,
                  .block_bytes = block_bytes(geometry, size, geometry.heads),
                  .blocks = paired_blocks(layer, *strip, fetch),
                  .sources = source_ranks(ranks_of(geometry, static_cast<int>(ranks_->size()))),
                  .parts = self_.order() == BlockOrder::halves ? geometry.planes : 1};
  landing_bytes_ += static_cast<std::int64_t>(landing.blocks.local.size()) * landing.block_bytes;
  layers_.push_back(std::move(landing));
}

// One block there holds all of it.
void NixlPull::add_state(std::size_t layer, const KvFetch& fetch) {
  const KvLayerGeometry& geometry = self_.geometry.layers[layer];
  const auto& ids =
      fetch.source.blocks[static_cast<std::size_t>(self_.regions.group_of_layer[layer])];
  check_ids(layer, ids);
  constexpr std::array<std::int64_t, 1> kOwn{0};
  auto paired = pair_states(kOwn, ids);
  if (!paired || paired->remote.front() == 0)
    refuse(
        fmt::format("remote_block_ids has {} blocks for the state of layer {}; it takes one "
                    "other than block 0",
                    ids.size(), geometry.name));
  const RankPair pair{.remote_ranks = static_cast<int>(ranks_->size()), .kv_heads = 1};
  layers_.push_back({.layer = layer,
                     .first_token = fetch.num_tokens - 1,
                     .at = landing_bytes_,
                     .block_bytes = geometry.row_bytes,
                     .blocks = std::move(*paired),
                     .sources = source_ranks(pair)});
  landing_bytes_ += geometry.row_bytes;
}

std::int64_t NixlPull::sum_of(const Landing& layer, std::int64_t block) const {
  return is_state(layer) ? block * ranks_->front().metadata.kernel_blocks_per_block : block;
}

void NixlPull::add_sums() {
  std::set<std::pair<std::size_t, std::int64_t>> known;
  for (const Landing& layer : layers_) {
    for (const std::int64_t id : layer.blocks.remote) {
      const std::int64_t block = sum_of(layer, id);
      if (!known.emplace(group_of(layer), block).second) continue;
      sums_.push_back({group_of(layer), block, landing_bytes_});
      landing_bytes_ += 8;
    }
  }
}

// Of a block of the layer what that rank has.
std::vector<BlockCopy> NixlPull::parts_of(const Landing& layer, int rank,
                                          std::uint64_t block_len) const {
  if (is_state(layer))
    return state_copies(layer.sources, rank, state_bytes(self_.geometry.layers[layer.layer].state));
  if (std::ranges::find(layer.sources.attention, rank) == layer.sources.attention.end()) return {};
  return attention_copies(layer.sources, rank, layer.block_bytes,
                          static_cast<std::int64_t>(block_len), layer.parts);
}

std::vector<NixlCopy> NixlPull::copies(int rank, std::span<std::byte> landing) const {
  const NixlMetadata& metadata = (*ranks_)[static_cast<std::size_t>(rank)].metadata;
  std::vector<NixlCopy> copies;
  const auto add = [&](std::uint64_t at, std::uint64_t remote, std::int64_t bytes) {
    std::byte* const local = landing.data() + at;
    const auto size = static_cast<std::size_t>(bytes);
    if (!copies.empty() && copies.back().remote + copies.back().bytes == remote &&
        static_cast<std::byte*>(copies.back().local) + copies.back().bytes == local) {
      copies.back().bytes += size;
    } else {
      copies.push_back({local, remote, size});
    }
  };
  for (const Landing& layer : layers_) {
    const std::size_t region = self_.regions.region_of_layer[layer.layer];
    const auto parts = parts_of(layer, rank, metadata.block_lens[region]);
    // A state is told by its first kernel block.
    const auto apart = static_cast<std::uint64_t>(sum_of(layer, 1));
    for (const RegionCopy& copy : region_copies(
             layer.blocks,
             {static_cast<std::uint64_t>(layer.at), static_cast<std::uint64_t>(layer.block_bytes)},
             {metadata.base_addresses[region], metadata.block_strides[region] * apart}, parts))
      add(copy.local, copy.remote, copy.bytes);
  }
  if (rank == 0)
    for (const Sum& sum : sums_)
      add(static_cast<std::uint64_t>(sum.landing),
          metadata.quire->sums_address + static_cast<std::uint64_t>(sum.block) * 8, 8);
  return copies;
}

template <class Visit>
void NixlPull::for_each_block(const Landing& layer, std::span<const std::byte> landing,
                              Visit visit) const {
  const auto size = static_cast<std::size_t>(layer.block_bytes);
  for (std::size_t i = 0; i < layer.blocks.remote.size(); ++i)
    visit(i, landing.subspan(static_cast<std::size_t>(layer.at) + i * size, size));
}

// As the other side made them: over the layers of the group, seeded with whose blocks they are and
// where in the prompt. Whoever passed their numbers on may have mixed them up.
void NixlPull::check_sums(std::span<const std::byte> landing) const {
  if (sums_.empty()) return;
  std::map<std::pair<std::size_t, std::int64_t>, std::uint64_t> found;
  const int size = ranks_->front().metadata.block_size;
  for (const Landing& layer : layers_)
    for_each_block(layer, landing, [&](std::size_t i, std::span<const std::byte> block) {
      const BlockIdentity identity{.prompt_hash = prompt_hash_,
                                   .group = group_of(layer),
                                   .first_token = layer.first_token + static_cast<int>(i) * size};
      std::uint64_t& sum =
          found
              .try_emplace({group_of(layer), sum_of(layer, layer.blocks.remote[i])},
                           block_sum_seed(key_, identity))
              .first->second;
      sum = kv_checksum(block, sum);
    });
  for (const Sum& sum : sums_) {
    std::uint64_t said = 0;
    std::memcpy(&said, landing.data() + sum.landing, sizeof said);
    if (said != found.at({sum.group, sum.block}))
      throw KvLost(KvLossReason::corrupt,
                   fmt::format("block {} has another sum than was said: it is damaged, of another "
                               "prompt or place, or in use for another request",
                               sum.block));
  }
}

void NixlPull::finish(std::span<const std::byte> landing, std::span<std::byte> bytes) const {
  check_sums(landing);
  const int size = ranks_->front().metadata.block_size;
  for (const Landing& layer : layers_)
    for_each_block(layer, landing, [&](std::size_t i, std::span<const std::byte> block) {
      if (is_state(layer)) {
        const auto strip =
            std::ranges::find(content_.strips, static_cast<int>(layer.layer), &KvStrip::layer);
        block_to_state(self_.geometry.layers[layer.layer].state, block,
                       bytes.subspan(static_cast<std::size_t>(strip->offset), block.size()));
        return;
      }
      const BlockPlace place{.layer = layer.layer,
                             .first_token = layer.first_token + static_cast<int>(i) * size,
                             .num_tokens = size,
                             .first_head = 0,
                             .num_heads = self_.geometry.layers[layer.layer].heads,
                             .order = self_.order()};
      block_to_content(self_.geometry, place, block, content_, bytes);
    });
}

}  // namespace quire
