#pragma once
// A shipped model's evaluation set: greedy answers of the reference implementation.

#include <string>
#include <vector>

#include "base/ids.h"

namespace quire::test {

struct EvalLine {
  std::vector<TokenId> prompt, reference;
  double margin = 0;  // smallest distance of best and second best logit on the reference's way
};

// Lines with at least this margin, in the file's order.
std::vector<EvalLine> eval_lines(const std::string& model, double min_margin);

}  // namespace quire::test
