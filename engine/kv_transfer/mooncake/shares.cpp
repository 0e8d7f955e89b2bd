#include "engine/kv_transfer/mooncake/shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/kv_transfer/blocks/state_layout.h"
#include "engine/kv_transfer/content/frames.h"
#include "engine/kv_transfer/plane/data_plane.h"

namespace quire {
namespace {

constexpr std::uint64_t kMostBlockTokens = 1 << 14;
constexpr std::int64_t kMostNamedTokens = 1 << 24;  // of a block that is named

[[noreturn]] void differs(const std::string& why) { throw KvLost(KvLossReason::incompatible, why); }

// Of heads that ranks share or have several of.
MooncakeShare heads_of(const KvLayerGeometry& layer, const MooncakeRegion& region,
                       const MooncakeAsk& ask) {
  MooncakeShare share{.num_heads = layer.heads};  // a latent is everybody's
  const int ranks = ask.tensor_ranks;
  if (layer.planes > 1) {
    const bool divides = ranks <= layer.heads ? layer.heads % ranks == 0 : ranks % layer.heads == 0;
    if (!divides)
      differs(fmt::format("remote_tp_size is {}, which does not divide the {} heads of keys of {}",
                          ranks, layer.heads, layer.name));
    share.first_head = static_cast<int>(std::int64_t{ask.tensor_rank} * layer.heads / ranks);
    share.num_heads = std::max(1, layer.heads / ranks);
  }
  const auto token = static_cast<std::uint64_t>(block_bytes(layer, 1, share.num_heads));
  share.block_size =
      static_cast<int>(std::min<std::uint64_t>(region.payload / token, kMostBlockTokens));
  if (region.payload == 0 || region.payload != token * static_cast<std::uint64_t>(share.block_size))
    differs(fmt::format(
        "kv_block_lens of layer {} are {} there, which are not blocks of {} "
        "bytes a token ({} heads of {} {})",
        layer.name, region.payload, token, share.num_heads, layer.head_size, layer.dtype));
  return share;
}

// A block that is named is a page of every layer's, in which a state has its place.
int ratio_of(const KvGeometry& geometry, const MooncakeAsk& ask,
             std::span<const MooncakeShare> shares) {
  std::optional<std::uint64_t> page;
  std::uint64_t block = 0, largest = 0;
  int block_size = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const KvLayerGeometry& layer = geometry.layers[shares[i].layer];
    const std::uint64_t payload = ask.regions[i].payload;
    if (!layer.is_state()) {
      if (block == 0) block_size = shares[i].block_size;
      if (block == 0) block = payload;
      continue;
    }
    largest = std::max(largest, static_cast<std::uint64_t>(layer.row_bytes / ask.tensor_ranks));
    if (page && *page != payload)
      differs(fmt::format("kv_block_lens of recurrent states are {} and {} there", *page, payload));
    page = payload;
  }
  if (!page) return 1;
  const std::uint64_t ratio = block == 0 ? 1 : *page / block;
  const bool is_filled =
      ratio * static_cast<std::uint64_t>(block_size) <= kMostBlockTokens || *page - largest < block;
  if (*page < largest || *page != (block == 0 ? largest : ratio * block) || !is_filled)
    differs(
        fmt::format("kv_block_lens are {} of a recurrent state there, of which {} are used, "
                    "and {} of a block",
                    *page, largest, block));
  return static_cast<int>(ratio);
}

}  // namespace

std::vector<MooncakeShare> mooncake_shares(const MooncakeSelf& self, const MooncakeAsk& ask) {
  const std::vector<int> numbers = mooncake_layer_numbers(self.geometry);
  std::vector<MooncakeShare> shares;
  std::vector<bool> seen(numbers.size(), false);
  for (const MooncakeRegion& region : ask.regions) {
    const auto found = std::ranges::find(numbers, region.layer_index);
    const auto i = static_cast<std::size_t>(found - numbers.begin());
    if (found == numbers.end() || seen[i])
      differs(
          fmt::format("layer {} there is layer {}, which is not one of this model's {} or is "
                      "registered twice",
                      region.layer, region.layer_index, numbers.size()));
    seen[i] = true;
    const KvLayerGeometry& layer = self.geometry.layers[i];
    if (region.group != self.regions.group_of_layer[i])
      differs(fmt::format("layer {} is in KV group {} here and {} there", layer.name,
                          self.regions.group_of_layer[i], region.group));
    if (layer.is_state() && !divides(layer.state, ask.tensor_ranks))
      differs(fmt::format("remote_tp_size is {}, which does not divide the recurrent state of {}",
                          ask.tensor_ranks, layer.name));
    MooncakeShare share = layer.is_state() ? MooncakeShare() : heads_of(layer, region, ask);
    share.layer = i;
    if (region.stride < region.payload)
      differs(fmt::format("block_lens of layer {} are {} there, and kv_block_lens {}", layer.name,
                          region.stride, region.payload));
    shares.push_back(share);
  }
  if (shares.size() != numbers.size())
    differs(
        fmt::format("{} layers keep something here and {} there", numbers.size(), shares.size()));
  const int ratio = ratio_of(self.geometry, ask, shares);
  for (MooncakeShare& share : shares) {
    if (share.block_size == 0) continue;
    share.ratio = ratio;
    if (std::int64_t{share.block_size} * ratio > kMostNamedTokens)
      differs(fmt::format("a block there has {} of {} tokens; at most {} tokens are one", ratio,
                          share.block_size, kMostNamedTokens));
  }
  return shares;
}

void check_mooncake_ask(const MooncakeSelf& self, const MooncakeAsk& ask) {
  if (ask.layout != 0 && ask.regions.empty())
    throw KvLost(KvLossReason::incompatible, "the layout was left out");
  if (ask.pipeline_ranks != 1)
    throw KvLost(KvLossReason::incompatible,
                 fmt::format("remote_pp_size is {}; 1 is written to", ask.pipeline_ranks));
  if (!ask.geometry.empty()) {
    const auto welcome = decode_kv<KvWelcome>(ask.geometry);
    if (!welcome) throw KvLost(KvLossReason::corrupt, "quire_geometry is broken");
    if (const std::string release = protocol_difference(*welcome); !release.empty())
      differs(release);
    const std::string difference = geometry_difference(self.geometry, welcome->geometry);
    if (!difference.empty()) throw KvLost(KvLossReason::incompatible, difference);
  } else if (self.geometry.has_states() && !self.geometry.draft_fingerprint.empty()) {
    differs("recurrent states beside a draft model are written to Quire servers only");
  }
  mooncake_shares(self, ask);
}

std::vector<std::uint64_t> mooncake_first_rows(const KvContent& kept,
                                               std::span<const MooncakeShare> shares,
                                               bool is_told) {
  std::vector<std::uint64_t> first_rows(shares.size());
  for (const KvStrip& strip : kept.strips)
    first_rows[static_cast<std::size_t>(strip.layer)] = static_cast<std::uint64_t>(strip.first);
  for (const MooncakeShare& share : shares) {
    const std::uint64_t first = first_rows[share.layer];
    const auto size = static_cast<std::uint64_t>(share.block_size * share.ratio);
    if (!is_told && size > 0 && first % size != 0)
      differs(
          fmt::format("a layer with a window is kept from token {} on, within one of the blocks "
                      "of {} there; blocks of CacheConfig::block_size are exchanged",
                      first, size));
  }
  return first_rows;
}

}  // namespace quire
