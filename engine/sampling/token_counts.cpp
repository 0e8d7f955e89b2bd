#include "engine/sampling/token_counts.h"

#include <algorithm>

namespace quire {

void TokenCounts::clear() {
  tokens_.clear();
  counts_.clear();
  std::ranges::fill(cells_, -1);
}

std::int32_t& TokenCounts::count_of(TokenId token) {
  if (2 * (tokens_.size() + 1) > cells_.size()) grow();
  std::int32_t& cell = cells_[find(token)];
  if (cell < 0) {
    cell = static_cast<std::int32_t>(tokens_.size());
    tokens_.push_back(token);
    counts_.push_back(0);
  }
  return counts_[cell];
}

void TokenCounts::grow() {
  cells_.assign(std::max<std::size_t>(64, 2 * cells_.size()), -1);
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    cells_[find(tokens_[i])] = static_cast<std::int32_t>(i);
  }
}

std::size_t TokenCounts::find(TokenId token) const {
  const std::size_t mask = cells_.size() - 1;
  // Fibonacci hashing: token ids are small and often neighbours.
  std::size_t at = (static_cast<std::uint64_t>(token) * 0x9e3779b97f4a7c15u >> 32) & mask;
  while (cells_[at] >= 0 && tokens_[cells_[at]] != token) at = (at + 1) & mask;
  return at;
}

}  // namespace quire
