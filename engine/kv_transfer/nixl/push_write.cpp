#include "engine/kv_transfer/nixl/push_write.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/kv_nixl/block_ids.h"
#include "engine/kv_transfer/blocks/shape.h"
#include "engine/kv_transfer/blocks/state_layout.h"
#include "engine/kv_transfer/blocks/sum_seed.h"
#include "engine/kv_transfer/content/checksum.h"

namespace quire {
namespace {

void add_copy(std::vector<NixlCopy>& copies, std::byte* local, std::uint64_t remote,
              std::size_t bytes) {
  if (!copies.empty() && copies.back().remote + copies.back().bytes == remote &&
      static_cast<std::byte*>(copies.back().local) + copies.back().bytes == local) {
    copies.back().bytes += bytes;
  } else {
    copies.push_back({local, remote, bytes});
  }
}

}  // namespace

NixlPushWrite::NixlPushWrite(const NixlSelf& self, Ranks ranks,
                             std::shared_ptr<const KeptPrefill> prefill,
                             const NixlPushRegistration& registration)
    : self_(self), ranks_(std::move(ranks)), prefill_(std::move(prefill)) {
  if (registration.blocks.size() != self.regions.num_groups)
    throw KvLost(KvLossReason::refused,
                 fmt::format("local_block_ids has {} groups; this model has {}",
                             registration.blocks.size(), self.regions.num_groups));
  for (const auto& ids : registration.blocks) add_group(ids);
  if (!metadata().quire) check_windows();
  const std::uint64_t seed = block_sum_seed(registration.request);
  for (Group& group : groups_) group.sums.assign(group.ids.size(), seed);
}

std::int64_t NixlPushWrite::least_scratch_bytes(const KvGeometry& geometry, int block_size) {
  std::int64_t most = 0;
  for (const KvLayerGeometry& layer : geometry.layers)
    most = std::max(
        most, layer.is_state() ? layer.row_bytes : block_bytes(layer, block_size, layer.heads));
  return most;
}

void NixlPushWrite::check_ids(std::span<const std::int64_t> ids, bool is_state) const {
  std::uint64_t num_blocks = metadata().num_blocks;
  for (std::size_t i = 0; i < self_.geometry.layers.size(); ++i)
    if (self_.regions.group_of_layer[i] == static_cast<int>(groups_.size()))
      num_blocks =
          std::min(num_blocks, num_region_blocks(metadata(), self_.regions.region_of_layer[i]));
  num_blocks /= static_cast<std::uint64_t>(metadata().kernel_blocks_per_block);
  for (const std::int64_t id : ids)
    if (id < 0 || static_cast<std::uint64_t>(id) >= num_blocks)
      throw KvLost(KvLossReason::refused,
                   fmt::format("local_block_ids has {}, which is not one of the other side's {} "
                               "blocks",
                               id, num_blocks));
  if (is_state && (ids.size() != 1 || ids.front() == 0))
    throw KvLost(KvLossReason::refused,
                 fmt::format("local_block_ids has {} blocks for a state; it takes one other than "
                             "block 0",
                             ids.size()));
}

// Ids are of whole blocks and end with what is kept: one is left out where it is a hit there, and
// none stands for the token that is left to them (vLLM 0.28 to 0.33 allocate for such a load what
// is loaded). With another one nobody could say which tokens a shorter list is of.
void NixlPushWrite::add_group(std::span<const std::int64_t> ids) {
  const bool is_state = holds_state(self_.geometry, self_.regions, groups_.size());
  const int ratio = metadata().kernel_blocks_per_block;
  const int size = metadata().block_size * ratio;
  const int num_tokens = prefill_->content.num_tokens;
  const int total = (num_tokens + size - 1) / size;
  if (ids.size() > static_cast<std::size_t>(total))
    throw KvLost(KvLossReason::prompt,
                 fmt::format("local_block_ids has {} blocks; {} tokens fill {} of {}", ids.size(),
                             num_tokens, total, size));
  check_ids(ids, is_state);
  Group& group = groups_.emplace_back();
  group.ids = kernel_blocks(ids, ratio, false);
  if (is_state) return group.ids.resize(1);
  group.first_token = (total - static_cast<int>(ids.size())) * size;
  // vLLM would find another request's rows behind the prompt.
  const int filled = (num_tokens + metadata().block_size - 1) / metadata().block_size;
  const int own = std::max(0, filled - group.first_token / metadata().block_size);
  if (metadata().quire) group.ids.resize(std::min(group.ids.size(), static_cast<std::size_t>(own)));
}

// vLLM takes what stands beside a window in its block for computed.
void NixlPushWrite::check_windows() const {
  for (const KvStrip& strip : prefill_->content.strips)
    if (!self_.geometry.layers[static_cast<std::size_t>(strip.layer)].is_state() &&
        strip.first % (metadata().block_size * metadata().kernel_blocks_per_block) != 0)
      throw KvLost(
          KvLossReason::incompatible,
          fmt::format("a layer with a window is kept from token {} on, within one of the "
                      "blocks of {} there; blocks of CacheConfig::block_size are written",
                      strip.first, metadata().block_size * metadata().kernel_blocks_per_block));
}

// Ranks share a layer's heads, or several have the same.
BlockPlace NixlPushWrite::place_of(std::size_t layer, std::size_t block) const {
  const KvLayerGeometry& geometry = self_.geometry.layers[layer];
  const auto group = static_cast<std::size_t>(self_.regions.group_of_layer[layer]);
  const int size = metadata().block_size;
  const int num_ranks = static_cast<int>(ranks_->size());
  BlockPlace place{.layer = layer,
                   .first_token = groups_[group].first_token + static_cast<int>(block) * size,
                   .num_tokens = size,
                   .first_head = 0,
                   .num_heads = geometry.heads,
                   .order = self_.order()};
  if (geometry.planes == 1) return place;  // a latent is everybody's
  place.first_head =
      static_cast<int>(static_cast<std::int64_t>(rank_) * geometry.heads / num_ranks);
  place.num_heads = std::max(1, geometry.heads / num_ranks);
  return place;
}

std::uint64_t NixlPushWrite::address_of(std::int64_t block) const {
  const std::size_t region = self_.regions.region_of_layer[layer_];
  return metadata().base_addresses[region] +
         static_cast<std::uint64_t>(block) * metadata().block_strides[region];
}

bool NixlPushWrite::add_block(Group& group, std::span<std::byte>& scratch, Part& part) {
  const BlockPlace place = place_of(layer_, block_);
  const auto size = static_cast<std::size_t>(
      block_bytes(self_.geometry.layers[layer_], place.num_tokens, place.num_heads));
  if (size > scratch.size()) return false;
  const auto block = scratch.first(size);
  std::ranges::fill(block, std::byte{0});
  content_to_block(self_.geometry, place, prefill_->content, prefill_->range->bytes(), block);
  group.sums[block_] = kv_checksum(block, group.sums[block_]);
  add_copy(part.copies, block.data(), address_of(group.ids[block_]), size);
  scratch = scratch.subspan(size);
  return true;
}

// The rank's part. Whoever has sums has all of it.
bool NixlPushWrite::add_state(Group& group, std::span<std::byte>& scratch, Part& part) {
  const KvLayerGeometry& layer = self_.geometry.layers[layer_];
  const auto whole = static_cast<std::size_t>(layer.row_bytes);
  const std::size_t size = whole / ranks_->size();
  if (size > scratch.size()) return false;
  const auto block = scratch.first(size);
  const auto strip =
      std::ranges::find(prefill_->content.strips, static_cast<int>(layer_), &KvStrip::layer);
  state_to_rank(layer.state,
                prefill_->range->bytes().subspan(static_cast<std::size_t>(strip->offset), whole),
                static_cast<int>(rank_), static_cast<int>(ranks_->size()), block);
  group.sums[block_] = kv_checksum(block, group.sums[block_]);
  add_copy(part.copies, block.data(), address_of(group.ids[block_]), size);
  scratch = scratch.subspan(size);
  return true;
}

// False: the scratch is full.
bool NixlPushWrite::add_blocks(std::span<std::byte>& scratch, Part& part) {
  for (; layer_ < self_.geometry.layers.size(); ++layer_, block_ = 0) {
    Group& group = groups_[static_cast<std::size_t>(self_.regions.group_of_layer[layer_])];
    const bool is_state = self_.geometry.layers[layer_].is_state();
    for (; block_ < group.ids.size(); ++block_)
      if (!(is_state ? add_state(group, scratch, part) : add_block(group, scratch, part)))
        return false;
  }
  return true;
}

bool NixlPushWrite::add_sums(std::span<std::byte>& scratch, Part& part) {
  if (!metadata().quire) return true;
  for (; group_ < groups_.size(); ++group_, block_ = 0) {
    const Group& group = groups_[group_];
    for (; block_ < group.ids.size(); ++block_) {
      constexpr std::size_t kSize = sizeof(std::uint64_t);
      if (scratch.size() < kSize) return false;
      std::memcpy(scratch.data(), &group.sums[block_], kSize);
      add_copy(
          part.copies, scratch.data(),
          metadata().quire->sums_address + static_cast<std::uint64_t>(group.ids[block_]) * kSize,
          kSize);
      scratch = scratch.subspan(kSize);
    }
  }
  return true;
}

std::optional<NixlPushWrite::Part> NixlPushWrite::next(std::span<std::byte> scratch) {
  if (rank_ == ranks_->size()) return std::nullopt;
  Part part{.rank = rank_, .copies = {}};
  part.ends_rank = add_blocks(scratch, part) && add_sums(scratch, part);
  for (const NixlCopy& copy : part.copies) bytes_ += static_cast<std::int64_t>(copy.bytes);
  if (part.ends_rank) {
    ++rank_;
    layer_ = block_ = group_ = 0;
  }
  return part;
}

}  // namespace quire
