#include "base/nearest.h"

#include <algorithm>
#include <vector>

namespace quire {

namespace {

// Nobody mistypes more; what a client sends may be long.
constexpr std::size_t kLongest = 100;

// Less is the beginning of too many words to mean one of them.
constexpr std::size_t kShortestBeginning = 3;

// Optimal string alignment, by rows of the table.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = above;
    above = row;
  }
  return above[b.size()];
}

std::optional<std::string_view> completed(std::string_view word,
                                          std::span<const std::string_view> candidates) {
  if (word.size() < kShortestBeginning) return std::nullopt;
  const auto begins = [word](std::string_view candidate) { return candidate.starts_with(word); };
  const auto found = std::ranges::find_if(candidates, begins);
  if (found == candidates.end() || std::any_of(found + 1, candidates.end(), begins))
    return std::nullopt;
  return *found;
}

}  // namespace

std::optional<std::string_view> nearest(std::string_view word,
                                        std::span<const std::string_view> candidates) {
  if (word.size() > kLongest) return std::nullopt;
  if (const auto whole = completed(word, candidates)) return whole;
  std::optional<std::string_view> best;
  std::size_t fewest = std::max<std::size_t>(1, word.size() / 4) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t edits = distance(word, candidate);
    if (edits >= fewest) continue;
    fewest = edits;
    best = candidate;
  }
  return best;
}

}  // namespace quire
