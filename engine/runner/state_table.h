#pragma once
// Blocks of one group of recurrent states, by slot. On the host: a step needs two of a request's
// blocks, whatever its length. Engine thread only. After construction nothing is allocated.

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace quire {

class StateTable {
 public:
  StateTable(int max_slots, int max_blocks)
      : max_blocks_(max_blocks),
        blocks_(static_cast<std::size_t>(max_slots) * max_blocks),
        counts_(max_slots) {}

  void clear(int slot) { counts_[slot] = 0; }
  void append(int slot, std::span<const BlockId> blocks) {
    assert(counts_[slot] + static_cast<std::ptrdiff_t>(blocks.size()) <= max_blocks_);
    std::ranges::copy(blocks, row(slot) + counts_[slot]);
    counts_[slot] += static_cast<std::int32_t>(blocks.size());
  }
  int count(int slot) const { return counts_[slot]; }
  BlockId at(int slot, int index) const {
    assert(index < counts_[slot]);
    return blocks_[static_cast<std::size_t>(slot) * max_blocks_ + index];
  }

 private:
  BlockId* row(int slot) {
    return blocks_.data() + static_cast<std::ptrdiff_t>(slot) * max_blocks_;
  }

  const int max_blocks_;
  std::vector<BlockId> blocks_;       // [max_slots, max_blocks]
  std::vector<std::int32_t> counts_;  // [max_slots]
};

}  // namespace quire
