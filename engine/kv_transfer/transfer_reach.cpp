#include "engine/kv_transfer/transfer_reach.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/kv_transfer/blocks/shape.h"
#include "engine/kv_transfer/content/content.h"
#include "engine/kv_transfer/mooncake/landing.h"
#include "engine/kv_transfer/nixl/exports.h"
#include "engine/kv_transfer/nixl/push_landing.h"
#include "engine/kv_transfer/nixl/push_sender.h"

namespace quire {
namespace {

constexpr std::int64_t kMostDefaultBytes = std::int64_t{1} << 30;
constexpr std::int64_t kForWindows = 1 << 20;  // what blocks keep beside a window
constexpr int kUsualPeerBlock = 16;            // tokens
constexpr std::int64_t kAlign = 64;            // of a range in the memory

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

using BytesOf = std::function<std::int64_t(int num_tokens)>;

BytesOf rows_of(const KvGeometry& geometry) {
  return [&geometry](int tokens) { return aligned(kv_content(geometry, tokens).bytes); };
}

KvGeometry without_states(const KvGeometry& geometry, std::vector<int>& groups) {
  KvGeometry tokens = geometry;
  tokens.layers.clear();
  std::vector<int> kept;
  for (std::size_t i = 0; i < geometry.layers.size(); ++i) {
    if (geometry.layers[i].is_state()) continue;
    tokens.layers.push_back(geometry.layers[i]);
    kept.push_back(groups[i]);
  }
  groups = std::move(kept);
  return tokens;
}

std::int64_t bytes_of_states(const KvGeometry& geometry) {
  std::int64_t bytes = 0;
  for (const KvLayerGeometry& layer : geometry.layers)
    if (layer.is_state())
      bytes += layer.row_bytes + static_cast<std::int64_t>(sizeof(std::uint64_t));
  return bytes;
}

// Blocks land whole beside the rows that they become; those that are read are of 16 tokens, and
// have sums.
BytesOf read_of(const KvGeometry& geometry, std::span<const int> groups) {
  std::vector<int> group_of_layer(groups.begin(), groups.end());
  MooncakeSelf self{.geometry = without_states(geometry, group_of_layer), .regions = {}};
  self.regions = block_regions(group_of_layer);
  return [self, states = bytes_of_states(geometry)](int tokens) {
    constexpr auto kSumBytes = static_cast<std::int64_t>(sizeof(std::uint64_t));
    const MooncakeLanding landing(self, tokens, 0, 1);
    return aligned(landing.bytes() + kSumBytes * landing.num_ids() + states) +
           aligned(landing.content().bytes + states);
  };
}

BytesOf landed_of(const KvGeometry& geometry, std::span<const int> groups, int block_size) {
  const MooncakeSelf self{
      .geometry = geometry, .regions = block_regions(groups), .block_size = block_size};
  return [self](int tokens) {
    const MooncakeLanding landing(self, tokens, 0, 1);
    return aligned(landing.bytes()) + aligned(landing.content().bytes);
  };
}

int peer_block_of(const KvTransferConfig& config) {
  return config.peer_block_size > 0 ? config.peer_block_size : kUsualPeerBlock;
}

// Half of the memory is for blocks that others write, the rest for rows.
BytesOf written_of(const KvTransferConfig& config, const KvGeometry& geometry,
                   std::span<const int> groups) {
  NixlSelf self{
      .geometry = geometry, .regions = block_regions(groups), .profile = {}, .factors = {}};
  const int size = peer_block_of(config);
  const BlockShape shape = block_shape(geometry, self.regions, size);
  const std::int64_t per_block =
      shape.ratio * (shape.kernel_bytes() + static_cast<std::int64_t>(sizeof(std::uint64_t)));
  return [self, size, per_block](int tokens) {
    const NixlPushLanding landing(self, size, tokens, 0);
    return 2 * aligned(std::max((landing.num_blocks() + 1) * per_block, landing.content().bytes));
  };
}

BytesOf kept_of(const KvTransferConfig& config, const KvGeometry& geometry,
                std::span<const int> groups, int longest_prompt) {
  if (config.pushes_nixl())
    return [&geometry, size = peer_block_of(config), rows = rows_of(geometry)](int tokens) {
      return NixlPushSender::bytes_for(geometry, size, rows(tokens));
    };
  if (!config.uses_nixl()) return rows_of(geometry);
  return [&geometry, regions = block_regions(groups),
          scratch = nixl_scratch_bytes(geometry, longest_prompt)](int tokens) {
    return NixlExports::bytes_for(geometry, regions, scratch, tokens);
  };
}

BytesOf arriving_of(const KvTransferConfig& config, const KvGeometry& geometry,
                    std::span<const int> groups) {
  if (config.uses_mooncake()) return landed_of(geometry, groups, peer_block_of(config));
  if (config.pushes_nixl()) return written_of(config, geometry, groups);
  if (config.uses_nixl()) return read_of(geometry, groups);
  return rows_of(geometry);
}

// Tokens of the longest prompt that fits.
int reach_of(std::int64_t memory, const BytesOf& bytes_of, int longest_prompt) {
  int fits = 0, too_long = longest_prompt + 1;
  while (too_long - fits > 1) {
    const int middle = std::midpoint(fits, too_long);
    (bytes_of(middle) <= memory ? fits : too_long) = middle;
  }
  return fits;
}

void note_reach(std::vector<std::string>& notes, std::int64_t memory, const BytesOf& bytes_of,
                int longest_prompt, const char* what) {
  const std::int64_t needed = bytes_of(longest_prompt);
  if (needed <= memory) return;
  constexpr std::int64_t kMebibyte = 1 << 20;
  notes.push_back(fmt::format(
      "prompts above {} tokens {}; KvTransferConfig::buffer_bytes {}MiB would hold the longest",
      reach_of(memory, bytes_of, longest_prompt), what, (needed + kMebibyte - 1) / kMebibyte));
}

}  // namespace

TransferSizes transfer_sizes(const KvTransferConfig& config, std::int64_t longest_bytes) {
  const bool is_asked = config.buffer_bytes > 0;
  const std::int64_t size =
      is_asked ? config.buffer_bytes : std::min(2 * longest_bytes + kForWindows, kMostDefaultBytes);
  const auto where = [&](bool wanted, bool holds_blocks) {
    return wanted ? size * (holds_blocks && !is_asked ? 2 : 1) : 0;
  };
  return {.kept = where(config.prefills(), config.uses_nixl()),
          .arriving = where(config.decodes(), config.uses_nixl() || config.uses_mooncake())};
}

std::int64_t longest_prefill_bytes(std::span<const LayerKvSpec> layers,
                                   std::int64_t max_model_len) {
  std::int64_t bytes = 0;
  for (const LayerKvSpec& layer : layers) {
    const KvLayerGeometry geometry = layer_geometry(layer, 1);
    const std::int64_t rows = geometry.is_state() ? 1
                              : geometry.window > 0
                                  ? std::min<std::int64_t>(geometry.window, max_model_len)
                                  : max_model_len;
    bytes += rows * geometry.planes * geometry.row_bytes;
  }
  return bytes;
}

std::int64_t nixl_scratch_bytes(const KvGeometry& geometry, int longest_prompt) {
  std::int64_t most = 0;
  for (const KvLayerGeometry& layer : geometry.layers)
    most = std::max(most, layer.row_bytes * (layer.is_state() ? 1 : layer.planes * longest_prompt));
  return most;
}

std::vector<std::string> transfer_notes(const KvTransferConfig& config, const KvGeometry& geometry,
                                        std::span<const int> group_of_layer,
                                        const TransferSizes& sizes, int longest_prompt) {
  std::vector<std::string> notes;
  if (config.prefills())
    note_reach(notes, sizes.kept, kept_of(config, geometry, group_of_layer, longest_prompt),
               longest_prompt, "are not kept for whoever continues, who computes them again");
  if (config.decodes())
    note_reach(notes, sizes.arriving, arriving_of(config, geometry, group_of_layer), longest_prompt,
               "are not fetched, but computed here again");
  return notes;
}

}  // namespace quire
