#pragma once
// What steps take, by their size, as measured while they run: seconds, a low one of the latest few,
// as whatever else a machine does only adds to them. A size that never ran is guessed from those
// that did, kindly, so that it is tried. Engine thread only.

#include <array>
#include <cstdint>
#include <vector>

namespace quire {

// A value of some size, in buckets that are exact for small ones.
class CostCurve {
 public:
  void add(int size, double seconds);
  // Between measured sizes by a line; above the largest as the largest, below the least as that. 0
  // where nothing is measured.
  double at(int size) const;

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
  static int bucket(int size);

  std::array<Point, kBuckets> points_ = {};
};

class DraftCosts {
 public:
  explicit DraftCosts(int max_drafts) : drafting_(static_cast<std::size_t>(max_drafts)) {}

  // A step in which each request had its one token and drafts.
  void add_step(int num_tokens, double seconds) { steps_.add(num_tokens, seconds); }
  void add_drafting(int num_rows, int num_drafts, double seconds);
  // A model took so many tokens of prompts in; what drafts took besides is not counted.
  void add_intake(int num_tokens, double seconds);

  double step(int num_tokens) const { return steps_.at(num_tokens); }
  // Of proposing this many drafts for each of this many requests, by a model.
  double drafting(int num_rows, int num_drafts) const;
  double intake(int num_tokens) const;

 private:
  CostCurve steps_;
  CostCurve intakes_;                // over tokens
  int largest_intake_ = 0;           // tokens
  std::vector<CostCurve> drafting_;  // by drafts − 1, over rows
};

}  // namespace quire
