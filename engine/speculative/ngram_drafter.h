#pragma once
// Prompt lookup: the longest suffix of the request's tokens that occurred before, of its
// occurrences the earliest, proposes what followed it there (vLLM's rule).

#include "engine/speculative/drafter.h"

namespace quire {

class NgramDrafter final : public Drafter {
 public:
  // Suffixes of min_tokens to max_tokens.
  NgramDrafter(int min_tokens, int max_tokens) : min_(min_tokens), max_(max_tokens) {}
  void propose(const Request& request, int max_drafts, std::vector<TokenId>& drafts) override;

 private:
  const int min_, max_;
  std::vector<int> border_;  // of the request at hand
};

}  // namespace quire
