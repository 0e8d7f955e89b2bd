#include "engine/speculative/draft_costs.h"

#include <algorithm>
#include <cmath>

namespace quire {

int CostCurve::bucket(int size) {
  if (size <= kExact) return std::max(size, 0);
  const double doublings = std::log2(static_cast<double>(size) / kExact);
  return std::min(kExact + static_cast<int>(std::ceil(doublings * kPerDoubling)), kBuckets - 1);
}

// What else a machine does must not look like a cost: hence no mean.
void CostCurve::add(int size, double seconds) {
  constexpr double kMemory = 16;
  Point& point = points_[static_cast<std::size_t>(bucket(size))];
  point.recent[static_cast<std::size_t>(point.count % kRecent)] = seconds;
  ++point.count;
  point.size += (size - point.size) / std::min(static_cast<double>(point.count), kMemory);
  std::array<double, kRecent> sorted = point.recent;
  const auto num = static_cast<std::ptrdiff_t>(std::min<std::int64_t>(point.count, kRecent));
  const auto low = sorted.begin() + (num - 1) / 3;
  std::nth_element(sorted.begin(), low, sorted.begin() + num);
  point.seconds = *low;
}

// What ran once may have been disturbed: such sizes are unknown where others are known better.
double CostCurve::at(int size) const {
  constexpr int kSome = 3;
  const Point *below = nullptr, *above = nullptr;
  const int own = bucket(size);
  for (const int least : {kSome, 1}) {
    for (int i = own; i >= 0 && below == nullptr; --i)
      if (points_[static_cast<std::size_t>(i)].count >= least)
        below = &points_[static_cast<std::size_t>(i)];
    for (int i = own + 1; i < kBuckets && above == nullptr; ++i)
      if (points_[static_cast<std::size_t>(i)].count >= least)
        above = &points_[static_cast<std::size_t>(i)];
    if (below != nullptr || above != nullptr) break;
  }
  if (below == nullptr) return above == nullptr ? 0 : above->seconds;
  if (above == nullptr || bucket(static_cast<int>(below->size)) == own) return below->seconds;
  const double way = (size - below->size) / (above->size - below->size);
  return below->seconds + std::clamp(way, 0.0, 1.0) * (above->seconds - below->seconds);
}

void DraftCosts::add_drafting(int num_rows, int num_drafts, double seconds) {
  drafting_[static_cast<std::size_t>(num_drafts - 1)].add(num_rows, seconds);
}

void DraftCosts::add_intake(int num_tokens, double seconds) {
  intakes_.add(num_tokens, seconds);
  largest_intake_ = std::max(largest_intake_, num_tokens);
}

double DraftCosts::intake(int num_tokens) const {
  if (num_tokens <= 0) return 0;
  const double beyond = static_cast<double>(num_tokens) / std::max(largest_intake_, 1);
  return intakes_.at(num_tokens) * std::max(beyond, 1.0);
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
