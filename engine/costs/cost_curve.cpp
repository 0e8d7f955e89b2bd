#include "engine/costs/cost_curve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace quire {

int CostCurve::bucket(int size) {
  if (size <= kExact) return std::max(size, 0);
  const double doublings = std::log2(static_cast<double>(size) / kExact);
  return std::min(kExact + static_cast<int>(std::ceil(doublings * kPerDoubling)), kBuckets - 1);
}

// What else a machine does must not look like a cost: hence no mean.
void CostCurve::add(int size, double seconds) {
  constexpr double kMemory = 16;
  const int own = bucket(size);
  least_ = std::min(least_, own);
  largest_ = std::max(largest_, own);
  Point& point = points_[static_cast<std::size_t>(own)];
  point.recent[static_cast<std::size_t>(point.count % kRecent)] = seconds;
  ++point.count;
  point.size += (size - point.size) / std::min(static_cast<double>(point.count), kMemory);
  std::array<double, kRecent> sorted = point.recent;
  const auto num = static_cast<std::ptrdiff_t>(std::min<std::int64_t>(point.count, kRecent));
  const auto low = sorted.begin() + (num - 1) / 3;
  std::nth_element(sorted.begin(), low, sorted.begin() + num);
  point.seconds = *low;
}

// Sizes that hardly ran are unknown where others are known better.
CostCurve::Neighbours CostCurve::find(int size) const {
  Neighbours found;
  const int own = bucket(size);
  for (const int least : {kSome, 1}) {
    for (int i = std::min(own, largest_); i >= least_ && found.below == nullptr; --i)
      if (points_[static_cast<std::size_t>(i)].count >= least)
        found.below = &points_[static_cast<std::size_t>(i)];
    for (int i = std::max(own + 1, least_); i <= largest_ && found.above == nullptr; ++i)
      if (points_[static_cast<std::size_t>(i)].count >= least)
        found.above = &points_[static_cast<std::size_t>(i)];
    if (found.below != nullptr || found.above != nullptr) break;
  }
  return found;
}

double CostCurve::at(int size) const {
  const Point& own = points_[static_cast<std::size_t>(bucket(size))];
  if (own.count >= kSome) return own.seconds;
  const auto [below, above] = find(size);
  if (below == nullptr) return above == nullptr ? 0 : above->seconds;
  if (above == nullptr || bucket(static_cast<int>(below->size)) == bucket(size))
    return below->seconds;
  const double way = (size - below->size) / (above->size - below->size);
  return below->seconds + std::clamp(way, 0.0, 1.0) * (above->seconds - below->seconds);
}

double CostCurve::at_most(int size) const {
  if (points_[static_cast<std::size_t>(bucket(size))].count >= kSome) return at(size);
  const auto [below, above] = find(size);
  if (below == nullptr || above != nullptr) return at(size);
  return below->seconds * std::max(size / std::max(below->size, 1.0), 1.0);
}

bool CostCurve::spans(int size) const {
  const auto [below, above] = find(size);
  if (below == nullptr) return false;
  return above != nullptr || bucket(static_cast<int>(below->size)) == bucket(size);
}

}  // namespace quire
