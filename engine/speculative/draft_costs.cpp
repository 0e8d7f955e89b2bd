#include "engine/speculative/draft_costs.h"

namespace quire {

void DraftCosts::add_drafting(int num_rows, int num_drafts, double seconds) {
  drafting_[static_cast<std::size_t>(num_drafts - 1)].add(num_rows, seconds);
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
