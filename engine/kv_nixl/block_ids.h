#pragma once
// Lists of blocks as vLLM servers name them to each other: by the scheduler's blocks, each some of
// the kernel's. Which block there fills which here, and what is copied then. Pure.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/kv_nixl/source_ranks.h"

namespace quire {

// The kernel's blocks; a state's block is one.
std::vector<std::int64_t> kernel_blocks(std::span<const std::int64_t> ids, int ratio,
                                        bool is_state);

struct PairedBlocks {
  std::vector<std::int64_t> local, remote;  // as many
};

// How two lists of a group lie to each other. Both end together (`tail`: that of a window leaves
// its begin out), or the remote one begins with the prompt and may end with other blocks, where
// those of the scheduler's have other sizes.
struct BlockAlignment {
  bool tail = true;
  std::int64_t local_first = 0;    // kernel blocks of the prompt before the local list
  std::int64_t largest_ratio = 1;  // of kernel blocks: their ends lie closer together than that
  std::optional<std::int64_t> end = {};  // kernel blocks that hold tokens, where that is known
};
// Errors are those of kTooManyLocal and kLengthsDiffer.
Result<PairedBlocks> pair_blocks(std::span<const std::int64_t> local,
                                 std::span<const std::int64_t> remote,
                                 const BlockAlignment& alignment);
// Of a state: one stands for one.
Result<PairedBlocks> pair_states(std::span<const std::int64_t> local,
                                 std::span<const std::int64_t> remote);
inline constexpr std::string_view kTooManyLocal = "too_many_local_blocks";
inline constexpr std::string_view kLengthsDiffer = "group_length_difference";

// Kernel blocks of one region, one behind the other.
struct RegionPlace {
  std::uint64_t address = 0;
  std::uint64_t stride = 0;  // bytes from one block that is named to the next
};
struct RegionCopy {
  std::uint64_t remote = 0, local = 0;
  std::int64_t bytes = 0;
};
// Part by part (source_ranks.h) the blocks in their order, as vLLM numbers its descriptors.
std::vector<RegionCopy> region_copies(const PairedBlocks& blocks, RegionPlace local,
                                      RegionPlace remote, std::span<const BlockCopy> parts);

}  // namespace quire
