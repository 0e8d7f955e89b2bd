#pragma once
// Which tokens a request has seen, and how often in its output: what penalties ask for.

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace quire {

// A hash set that keeps its entries dense, so that a step copies them without a search. Memory is
// kept over clear().
class TokenCounts {
 public:
  void clear();
  void add_prompt(TokenId token) { count_of(token); }
  void add_output(TokenId token) { ++count_of(token); }

  std::span<const TokenId> tokens() const { return tokens_; }       // each once
  std::span<const std::int32_t> counts() const { return counts_; }  // in the output; as tokens()

 private:
  std::int32_t& count_of(TokenId token);
  void grow();
  std::size_t find(TokenId token) const;  // its cell, or the empty one where it belongs

  std::vector<TokenId> tokens_;
  std::vector<std::int32_t> counts_;
  std::vector<std::int32_t> cells_;  // index into tokens_, −1: empty; size is a power of two
};

}  // namespace quire
