#pragma once
// What steps and drafting take, by their size (engine/costs/cost_curve.h). A size that never ran is
// guessed from those that did, kindly, so that it is tried. Engine thread only.

#include <vector>

#include "engine/costs/cost_curve.h"

namespace quire {

class DraftCosts {
 public:
  explicit DraftCosts(int max_drafts) : drafting_(static_cast<std::size_t>(max_drafts)) {}

  // A step in which each request had its one token and drafts.
  void add_step(int num_tokens, double seconds) { steps_.add(num_tokens, seconds); }
  void add_drafting(int num_rows, int num_drafts, double seconds);
  // A model took so many tokens of prompts in; what drafts took besides is not counted.
  void add_intake(int num_tokens, double seconds) { intakes_.add(num_tokens, seconds); }

  double step(int num_tokens) const { return steps_.at(num_tokens); }
  // Of proposing this many drafts for each of this many requests, by a model.
  double drafting(int num_rows, int num_drafts) const;
  double intake(int num_tokens) const;

 private:
  CostCurve steps_;
  CostCurve intakes_;                // over tokens
  std::vector<CostCurve> drafting_;  // by drafts − 1, over rows
};

}  // namespace quire
