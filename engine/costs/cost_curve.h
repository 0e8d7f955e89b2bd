#pragma once
// What something takes by its size, as measured while it runs: seconds, a low one of the latest few,
// as whatever else a machine does only adds to them. Engine thread only; allocates nothing.

#include <array>
#include <cstdint>

namespace quire {

// In buckets that are exact for small sizes.
class CostCurve {
 public:
  static constexpr int kSome = 3;  // what ran less often may have been disturbed

  void add(int size, double seconds);
  // Between measured sizes by a line; above the largest as the largest, below the least as that, so
  // that what never ran is tried. 0 where nothing is measured.
  double at(int size) const;
  // The same, but above the largest in proportion to the size.
  double at_most(int size) const;
  // It is among the sizes measured, or between two of them.
  bool spans(int size) const;

 private:
  static constexpr int kExact = 32, kPerDoubling = 8, kDoublings = 12;
  static constexpr int kBuckets = kExact + kPerDoubling * kDoublings + 1;
  static constexpr int kRecent = 9;
  struct Point {
    double size = 0;     // mean
    double seconds = 0;  // a third of the latest took less
    std::array<double, kRecent> recent = {};
    std::int64_t count = 0;
  };
  // The nearest measured ones; null: none.
  struct Neighbours {
    const Point *below = nullptr, *above = nullptr;
  };
  static int bucket(int size);
  Neighbours find(int size) const;

  std::array<Point, kBuckets> points_ = {};
  int least_ = kBuckets, largest_ = -1;  // buckets that have any
};

}  // namespace quire
