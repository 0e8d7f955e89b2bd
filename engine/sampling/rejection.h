#pragma once
// Rejection sampling of drafts (Leviathan, Kalman, Matias, "Fast inference from transformers via
// speculative decoding", ICML 2023): a token that was drawn from the draft's distribution q is kept
// with probability min(1, p / q), else replaced by a draw from what the target's p has more than q.
// What comes out is distributed as p, whatever q is. On the host; any thread.

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace quire {

// What the draws of a request depend on, besides logits and position.
struct DrawParams {
  float temperature = 0;  // 0: greedy
  float top_p = 1, min_p = 0;
  std::int32_t top_k = 0;
  std::uint64_t seed = 0;
};

// Of a position's random numbers, beside those of backend/philox.h's own draws.
enum class DraftNoise : std::uint8_t { draft, keep, replace };

// 0 ≤ x < 1.
double draft_noise(const DrawParams& params, std::int64_t position, DraftNoise use);

// Each token's share of 1, after the filters of a draw (backend/ops_sampling.h), at a temperature
// above 0. Empty: there is nothing to draw from, as the logits are no numbers.
void shares_of(std::span<const float> logits, const DrawParams& params, std::vector<float>& shares);

// The token under which x of all shares is passed.
TokenId token_at(std::span<const float> shares, double x);

// The draft, or what replaces it.
TokenId verified(TokenId draft, std::span<const float> target, std::span<const float> drafted,
                 const DrawParams& params, std::int64_t position);

}  // namespace quire
