#pragma once
// What steps and drafting take, by their size (engine/costs/cost_curve.h). A step larger than any
// that ran is guessed in proportion. Curves keep low times, and drafts disturb more than those
// have: both kinds of steps are corrected by what they took of what was expected. Engine thread
// only.

#include <array>
#include <vector>

#include "engine/costs/cost_curve.h"

namespace quire {

class DraftCosts {
 public:
  static constexpr int kKnown = CostCurve::kSome;  // measured times that settle what a size takes

  explicit DraftCosts(int max_drafts) : drafting_(static_cast<std::size_t>(max_drafts)) {}

  // A step in which each request had its one token and drafts.
  void add_step(int num_tokens, double seconds) { steps_.add(num_tokens, seconds); }
  void add_drafting(int num_rows, int num_drafts, double seconds);
  // A model took so many tokens of prompts in; what drafts took besides is not counted.
  void add_intake(int num_tokens, double seconds) { intakes_.add(num_tokens, seconds); }

  // Such a step, with the drafting before it, took so long where the curves say `expected`.
  void compare(bool has_drafts, double expected, double seconds);

  // As the curves have it: a step of so many tokens, and the drafting before it.
  double step(int num_tokens, int num_drafting = 0, int num_drafts = 0) const;
  // The same, as slow as such steps turned out to be: without drafts, and with.
  double plain(int num_tokens) const { return slowness(false) * step(num_tokens); }
  double drafted(int num_tokens, int num_drafting, int num_drafts) const {
    return slowness(true) * step(num_tokens, num_drafting, num_drafts);
  }
  // Of what the curves have.
  double slowness(bool has_drafts) const;
  // Of proposing this many drafts for each of this many requests, by a model.
  double drafting(int num_rows, int num_drafts) const;
  double intake(int num_tokens) const;

 private:
  // Sums of ratios and of their number, the latest counting most.
  struct Slowness {
    double ratios = 0, number = 0;
  };
  CostCurve steps_;
  CostCurve intakes_;                // over tokens
  std::vector<CostCurve> drafting_;  // by drafts − 1, over rows
  std::array<Slowness, 2> slowness_;  // without drafts, with
};

}  // namespace quire
