#pragma once
// Merges the units of one word, always the pair with the lowest rank, of equal ones the first,
// until no rule is left. Keeps its memory from word to word.

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer/string_map.h"

namespace quire {

class BpeMerger {
 public:
  void merge(std::vector<TokenId>& units, const MergeMap& rules);

 private:
  struct Symbol {
    TokenId id;                   // -1: merged into the one before
    std::int32_t previous, next;  // -1: none
  };

  void merge_by_search(std::vector<TokenId>& units, const MergeMap& rules);
  void merge_by_queue(std::vector<TokenId>& units, const MergeMap& rules);
  void fill_queue(const std::vector<TokenId>& units, const MergeMap& rules);
  void enqueue(std::int32_t left, const MergeMap& rules);
  MergeRule rule_at(std::int32_t left, const MergeMap& rules) const;
  void merge_at(std::int32_t left, TokenId id);

  std::vector<MergeRule> found_;  // for each unit the rule for it and the next
  std::vector<Symbol> symbols_;
  std::vector<std::uint64_t> queue_;  // a heap of rank << 32 | position, lowest first
};

}  // namespace quire
