#include "engine/speculative/draft_costs.h"

#include <algorithm>

namespace quire {

void DraftCosts::add_drafting(int num_rows, int num_drafts, double seconds) {
  drafting_[static_cast<std::size_t>(num_drafts - 1)].add(num_rows, seconds);
}

// Of some fifty steps. What else a machine does may make one as long as any number of them.
void DraftCosts::compare(bool has_drafts, double expected, double seconds) {
  constexpr double kMemory = 0.98, kMost = 1.5;
  if (expected <= 0) return;
  Slowness& kind = slowness_[has_drafts];
  kind.ratios = kind.ratios * kMemory + std::min(seconds / expected, kMost);
  kind.number = kind.number * kMemory + 1;
}

double DraftCosts::slowness(bool has_drafts) const {
  constexpr double kGuesses = 16;  // that it is 1
  const Slowness& kind = slowness_[has_drafts];
  return (kind.ratios + kGuesses) / (kind.number + kGuesses);
}

double DraftCosts::step(int num_tokens, int num_drafting, int num_drafts) const {
  return steps_.at_most(num_tokens) + (num_drafting > 0 ? drafting(num_drafting, num_drafts) : 0);
}

double DraftCosts::intake(int num_tokens) const {
  return num_tokens <= 0 ? 0 : intakes_.at_most(num_tokens);
}

// A further draft is a further pass: between numbers of drafts that were tried, and beyond them, it
// goes by a line from none.
double DraftCosts::drafting(int num_rows, int num_drafts) const {
  if (num_drafts == 0) return 0;
  double below = 0;
  int below_at = 0;
  for (int i = num_drafts; i > 0 && below_at == 0; --i)
    if (const double one = drafting_[static_cast<std::size_t>(i) - 1].at(num_rows); one > 0)
      below = one, below_at = i;
  if (below_at == num_drafts) return below;
  for (int i = num_drafts + 1; i <= static_cast<int>(drafting_.size()); ++i) {
    const double above = drafting_[static_cast<std::size_t>(i) - 1].at(num_rows);
    if (above > 0)
      return below + (above - below) * (num_drafts - below_at) / static_cast<double>(i - below_at);
  }
  return below_at == 0 ? 0 : below * num_drafts / below_at;
}

}  // namespace quire
