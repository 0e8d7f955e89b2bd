#pragma once
// Whether blocks of another server can become blocks of this one: what vLLM's decode servers check
// of a handshake, in their order. Pure.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "engine/kv_nixl/source_ranks.h"

namespace quire {

struct FitSide {
  int block_size = 0;                              // tokens of a kernel block
  int ratio = 1;                                   // kernel blocks of one of the scheduler's
  std::span<const std::uint64_t> block_lens = {};  // by region, of one rank
  std::string_view layout;
};

struct FitRules {
  bool has_groups = false;  // of different kinds
  bool has_states = false;
  bool may_permute = false;       // from blocks with contiguous heads to others
  bool caches_prefixes = false;   // beside states
  bool lens_may_differ = false;   // of regions: since connector version 5
  bool joins_replicated = false;  // of ranks that have the same heads, one is read
};

enum class Misfit : std::uint8_t {
  tp_not_divisible,
  block_size_not_divisible,
  replicated_kv_with_more_producers,
  mamba_ratio_with_prefix_caching,
  hma_block_size_differs,
  layout_differs,
  permute_with_hma,
  head_split_needs_hnd,
  block_len_differs_replicated,
  remote_block_lens_not_equal,
  block_len_differs,
  block_size_differs_with_more_producers,
  remote_num_blocks_differ_between_ranks,
  region_count_differs,
};
std::string_view name_of(Misfit misfit);

struct FitProblem {
  Misfit misfit;
  std::size_t region = 0;  // of the lengths
};
// known_blocks: of another rank of the same server.
struct FitInput {
  RankPair ranks;
  FitSide local, remote;
  FitRules rules = {};
  std::uint64_t num_blocks = 0;
  std::optional<std::uint64_t> known_blocks = {};
};
std::optional<FitProblem> peer_misfit(const FitInput& input);
// Of a peer that fits: its heads lie in another order than here.
bool needs_permutation(const FitInput& input);

// Layouts in which the heads of a block lie one behind the other.
bool has_contiguous_heads(std::string_view layout);

}  // namespace quire
