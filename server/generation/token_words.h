#pragma once
// What tokens read as one after the other, for log-probabilities: one that leaves a character
// incomplete reads as nothing, the one that completes it as all of it. Joined, they are the text
// (as vLLM's LogprobsProcessor corrects them).

#include <string>
#include <string_view>

namespace quire {

class TokenWords {
 public:
  // The token of these bytes, if it were next.
  std::string next(std::string_view bytes) const;
  void advance(std::string_view bytes);

 private:
  std::string held_;  // the beginning of a character, and what stood in its token before it
};

}  // namespace quire
