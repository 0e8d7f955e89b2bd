#pragma once
// In which order prompts are expanded (MlaPromptArgs) where there is room for so many positions at
// a time: short prompts together, one that does not fit in pieces of its own.

#include <algorithm>
#include <vector>

#include "backend/ops_latent.h"

namespace quire {

// Positions [begin, end) of a prompt, whose keys and values stand from `slot` on.
struct LatentPiece {
  LatentPrompt prompt;
  std::int32_t begin, end, slot;

  bool is_whole() const { return begin == 0 && end == prompt.seq_len(); }
};

// f() for each round, with its pieces, at most `most`, in `round`.
template <class F>
void for_latent_rounds(std::span<const LatentPrompt> prompts, std::int32_t num_positions,
                       std::size_t most, std::vector<LatentPiece>& round, F&& f) {
  std::int32_t filled = 0;
  const auto run = [&] {
    if (!round.empty()) f();
    round.clear();
    filled = 0;
  };
  round.clear();
  for (const LatentPrompt& prompt : prompts) {
    if (prompt.num_tokens == 0) continue;
    for (std::int32_t begin = 0; begin < prompt.seq_len(); begin += num_positions) {
      const std::int32_t end = std::min(prompt.seq_len(), begin + num_positions);
      if (filled + end - begin > num_positions || round.size() == most) run();
      round.push_back({prompt, begin, end, filled});
      filled += end - begin;
      if (!round.back().is_whole()) run();
    }
  }
  run();
}

}  // namespace quire
