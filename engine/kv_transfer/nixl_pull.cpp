#include "engine/kv_transfer/nixl_pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "engine/kv_transfer/checksum.h"
#include "engine/kv_transfer/nixl_exports.h"

namespace quire {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw KvLost(KvLossReason::refused, why); }

KvGeometry with_block_size(KvGeometry geometry, int block_size) {
  for (KvLayerGeometry& layer : geometry.layers) layer.block_size = block_size;
  return geometry;
}

}  // namespace

NixlPull::NixlPull(const NixlSelf& self, Ranks ranks, const KvFetch& fetch)
    : self_(self), ranks_(std::move(ranks)), key_(fetch.source.prefill.key) {
  if (fetch.source.blocks.size() != self.regions.num_groups)
    refuse(fmt::format("remote_block_ids has {} groups; this model has {}",
                       fetch.source.blocks.size(), self.regions.num_groups));
  const NixlMetadata& metadata = ranks_->front().metadata;
  const int block_size = metadata.block_size * metadata.kernel_blocks_per_block;
  content_ = kv_content(with_block_size(self.geometry, block_size), fetch.num_tokens, fetch.from);
  for (std::size_t i = 0; i < self.geometry.layers.size(); ++i) add_layer(i, fetch);
  if (metadata.quire) add_sums();
}

// Ids are told by whole blocks, without those before a window; the list ends with the last block.
NixlPull::Wanted NixlPull::wanted_blocks(std::size_t layer, const KvFetch& fetch) const {
  const NixlMetadata& metadata = ranks_->front().metadata;
  const int ratio = metadata.kernel_blocks_per_block;
  const int size = metadata.block_size;
  const auto& ids =
      fetch.source.blocks[static_cast<std::size_t>(self_.regions.group_of_layer[layer])];
  const int total = (fetch.num_tokens + size * ratio - 1) / (size * ratio);
  const int left_out = std::max(0, total - static_cast<int>(ids.size()));
  const auto strip = std::ranges::find(content_.strips, static_cast<int>(layer), &KvStrip::layer);
  Wanted wanted{.first_token = strip->first / size * size, .blocks = {}};
  if (strip->rows == 0) return wanted;
  const bool is_short = left_out > 0 && self_.geometry.layers[layer].window == 0;
  if (is_short || wanted.first_token < left_out * size * ratio)
    refuse(
        fmt::format("remote_block_ids has {} blocks for layer {}; token {} of {} lies before "
                    "them",
                    ids.size(), self_.geometry.layers[layer].name, strip->first, fetch.num_tokens));
  for (int token = wanted.first_token; token < fetch.num_tokens; token += size) {
    const int index = token / (size * ratio);
    const std::int64_t id = ids[static_cast<std::size_t>(index - left_out)];
    const std::int64_t block = id * ratio + token / size % ratio;
    if (id < 0 || static_cast<std::uint64_t>(block) >= metadata.num_blocks)
      refuse(fmt::format("remote_block_ids has {}, which is not one of the peer's {} blocks", id,
                         metadata.num_blocks / static_cast<std::uint64_t>(ratio)));
    wanted.blocks.push_back(block);
  }
  return wanted;
}

void NixlPull::add_layer(std::size_t layer, const KvFetch& fetch) {
  const KvLayerGeometry& geometry = self_.geometry.layers[layer];
  const int size = ranks_->front().metadata.block_size;
  const Wanted wanted = wanted_blocks(layer, fetch);
  const int num_ranks = geometry.planes == 1 ? 1 : static_cast<int>(ranks_->size());
  for (int rank = 0; rank < num_ranks; ++rank) {
    const HeadRange heads = heads_of_rank(geometry, rank, num_ranks);
    int token = wanted.first_token;
    for (const std::int64_t block : wanted.blocks) {
      Piece piece{.place = {layer, token, size, heads.first, heads.count, self_.order()},
                  .rank = rank,
                  .group = static_cast<std::size_t>(self_.regions.group_of_layer[layer]),
                  .block = block,
                  .landing = landing_bytes_,
                  .bytes = block_bytes(geometry, size, heads.count)};
      landing_bytes_ += piece.bytes;
      pieces_.push_back(piece);
      token += size;
    }
  }
}

void NixlPull::add_sums() {
  std::set<std::pair<std::size_t, std::int64_t>> known;
  for (const Piece& piece : pieces_) {
    if (!known.emplace(piece.group, piece.block).second) continue;
    sums_.push_back({piece.group, piece.block, landing_bytes_});
    landing_bytes_ += 8;
  }
}

std::vector<NixlCopy> NixlPull::copies(int rank, std::span<std::byte> landing) const {
  const NixlMetadata& metadata = (*ranks_)[static_cast<std::size_t>(rank)].metadata;
  std::vector<NixlCopy> copies;
  const auto add = [&](std::int64_t at, std::uint64_t remote, std::int64_t bytes) {
    std::byte* const local = landing.data() + at;
    const auto size = static_cast<std::size_t>(bytes);
    if (!copies.empty() && copies.back().remote + copies.back().bytes == remote &&
        static_cast<std::byte*>(copies.back().local) + copies.back().bytes == local) {
      copies.back().bytes += size;
    } else {
      copies.push_back({local, remote, size});
    }
  };
  for (const Piece& piece : pieces_) {
    if (piece.rank != rank) continue;
    const std::size_t region = self_.regions.region_of_layer[piece.place.layer];
    add(piece.landing,
        metadata.base_addresses[region] +
            static_cast<std::uint64_t>(piece.block) * metadata.block_strides[region],
        piece.bytes);
  }
  if (rank == 0)
    for (const Sum& sum : sums_)
      add(sum.landing, metadata.quire->sums_address + static_cast<std::uint64_t>(sum.block) * 8, 8);
  return copies;
}

// As the other side made them: over the layers of the group, seeded with whose blocks they are.
void NixlPull::check_sums(std::span<const std::byte> landing) const {
  std::map<std::pair<std::size_t, std::int64_t>, std::uint64_t> found;
  const std::uint64_t seed = block_sum_seed(key_);
  for (const Piece& piece : pieces_) {
    std::uint64_t& sum = found.try_emplace({piece.group, piece.block}, seed).first->second;
    sum = kv_checksum(landing.subspan(static_cast<std::size_t>(piece.landing),
                                      static_cast<std::size_t>(piece.bytes)),
                      sum);
  }
  for (const Sum& sum : sums_) {
    std::uint64_t said = 0;
    std::memcpy(&said, landing.data() + sum.landing, sizeof said);
    if (said != found.at({sum.group, sum.block}))
      throw KvLost(KvLossReason::corrupt,
                   fmt::format("block {} has another sum than was said: it is damaged, or in use "
                               "for another request",
                               sum.block));
  }
}

void NixlPull::finish(std::span<const std::byte> landing, std::span<std::byte> bytes) const {
  check_sums(landing);
  for (const Piece& piece : pieces_)
    block_to_content(self_.geometry, piece.place,
                     landing.subspan(static_cast<std::size_t>(piece.landing),
                                     static_cast<std::size_t>(piece.bytes)),
                     content_, bytes);
}

}  // namespace quire
