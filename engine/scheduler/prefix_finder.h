#pragma once
// Finds which rows of a step begin with the same blocks, for attention to read these once: rows of
// few tokens, whose time is that of reading the cache. Blocks come to be several requests' by a
// prefix hit alone, so where one is shared, what lies before it is the same text; a search need not
// look at every block. Engine thread only.

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv_cache/kv_cache_manager.h"
#include "engine/scheduler/batch_plan.h"

namespace quire {

class PrefixFinder {
 public:
  // Below these a step gains less than partial results cost: of n rows the prefix is read for about
  // two (predicted: docs/cuda-model.md).
  static constexpr int kLeastRows = 4;
  static constexpr int kLeastTokens = 512;
  static constexpr int kRowsWorth = 2;

  // Fills shared_prefixes and shared_rows, from rows of at most most_tokens. For every plan, as it
  // remembers what slots had in common until their rows are new.
  void find(const KvCacheManager& kv, int most_tokens, BatchPlan& plan);

 private:
  struct Candidate {
    BlockId block;  // at kLeastTokens
    std::int32_t row;
    std::int32_t shared;  // tokens in common with the row that is looked at
  };
  // What a slot has in common with another; tables only grow, so it stays.
  struct Memory {
    std::int32_t slot = -1;
    std::uint32_t life = 0, own_life = 0;
    std::int32_t tokens = 0;
  };
  static constexpr int kMemories = 4;  // of a slot
  struct Choice {
    std::int64_t gain = 0;
    std::int32_t leader = 0, tokens = 0;
  };

  void begin_lives(const BatchPlan& plan);
  bool take_best(const KvCacheManager& kv, BatchPlan& plan, std::vector<Candidate>& rows,
                 int round);
  void compare(const KvCacheManager& kv, const BatchPlan& plan, std::int32_t leader, int memory,
               std::span<Candidate> rows);
  int tokens_in_common(const KvCacheManager& kv, const Request& a, const Request& b) const;

  std::vector<std::uint32_t> lives_;  // by slot
  std::vector<Memory> memories_;      // [slots, kMemories]
  std::vector<Candidate> candidates_, rows_;
  std::vector<std::int32_t> lengths_;
};

}  // namespace quire
