#include "engine/speculative/ngram_drafter.h"

#include <algorithm>

namespace quire {

// Knuth, Morris and Pratt's borders over the tokens read backwards: border[i] of the reversed text
// is how much of the suffix ends at that place of the text. One pass, whatever repeats. Matches are
// cut at max_, and of equally long ones the last of the reversed text is the earliest of the text.
void NgramDrafter::propose(const Request& request, int max_drafts, std::vector<TokenId>& drafts) {
  drafts.clear();
  const auto tokens = request.tokens();
  const int count = static_cast<int>(tokens.size());
  if (count <= min_ || max_drafts <= 0) return;
  const auto reversed = [&](int i) { return tokens[static_cast<std::size_t>(count - 1 - i)]; };
  border_.assign(static_cast<std::size_t>(max_), 0);
  int longest = 0, end = 0, matched = 0;
  for (int i = 1; i < count; ++i) {
    while (matched > 0 && reversed(matched) != reversed(i)) matched = border_[matched - 1];
    if (reversed(matched) == reversed(i)) ++matched;
    if (matched >= longest) {
      longest = matched;
      end = i;
    }
    if (i < max_) border_[i] = matched;
    if (matched == max_) matched = border_[max_ - 1];
  }
  if (longest < min_) return;
  const int begin = count - 1 - end + longest;  // behind the occurrence
  const int most = std::min(max_drafts, count - begin);
  drafts.assign(tokens.begin() + begin, tokens.begin() + begin + most);
}

}  // namespace quire
