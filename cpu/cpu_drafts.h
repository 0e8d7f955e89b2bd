#pragma once
// Drafts that are drawn, kept and replaced: backend/draft_ops.h on the host. Any thread.

#include <cstdint>
#include <span>
#include <vector>

#include "backend/draft_ops.h"
#include "cpu/context.h"

namespace quire::cpu {

struct ShareFilter {
  float temperature = 1, top_p = 1, min_p = 0;
  std::int32_t top_k = 0;
};

// Each token's share of 1, after the filters of a draw (backend/ops_sampling.h), at a temperature
// above 0. Empty: there is nothing to draw from, as the logits are no numbers.
void shares_of(std::span<const float> logits, const ShareFilter& filter,
               std::vector<float>& shares);
// The token under which x of all shares is passed.
std::int32_t token_at(std::span<const float> shares, double x);
// The draft, or what replaces it; keep and replace are of draft_noise().
std::int32_t verified(std::int32_t draft, std::span<const float> target,
                      std::span<const float> drafted, double keep, double replace);

void draw_drafts(Context& on, TensorView tokens, TensorView shares, TensorView logits,
                 TensorView places, const SamplingArgs& args);
void settle_drafts(const HeldArgs& args);
void lag_numbers(TensorView numbers, TensorView at, TensorView line, TensorView lost);
void verify_drafts(Context& on, TensorView logits, const VerifyArgs& args);

}  // namespace quire::cpu
