#pragma once
// What of drafts holds, on the device; and rejection sampling of drafts (Leviathan, Kalman, Matias,
// "Fast inference from transformers via speculative decoding", ICML 2023): a token that was drawn
// from the draft's distribution q is kept with probability min(1, p / q), else replaced by a draw
// from what the target's p has more than q. What comes out is distributed as p, whatever q is.
//
// Beside Ops, in the same style: a backend's Ops is also a DraftOps where it has it.

#include "backend/device.h"
#include "backend/ops_sampling.h"
#include "backend/philox.h"
#include "backend/tensor.h"

namespace quire {

class Ops;

// Of a position's random numbers, beside those of philox.h's own draws: beyond the counters of the
// noise of any vocabulary entry.
enum class DraftNoise : std::uint8_t { draft, keep, replace };

// 0 ≤ x < 1.
QUIRE_HOST_DEVICE inline double draft_noise(std::uint64_t seed, std::int64_t position,
                                            DraftNoise use) {
  const std::uint64_t counter = (std::uint64_t{1} << 40) + static_cast<std::uint64_t>(use);
  const Philox random = philox(seed, counter, static_cast<std::uint64_t>(position));
  const std::uint64_t bits = (std::uint64_t{random.word[0]} << 21) ^ (random.word[1] >> 11);
  return static_cast<double>(bits) * 0x1p-53;
}

// Drafts that were drawn, and what for each row of logits its draw depends on.
struct VerifyArgs {
  TensorView rows;        // i32 [N]: of logits; one occurs once
  TensorView drafts;      // i32 [N]: the token that the row verifies
  TensorView places;      // i32 [N]: of shares
  TensorView shares;      // f32 [P, D]: what they were drawn by
  TensorView target_ids;  // i32 [D, 1], optional: the target's token of each of the draft's
  SamplingArgs sampling;  // [S], by row of logits
};

// Behind a step that verified drafts, before the host knows what it drew. A line is a request that
// a draft model goes on from, laid out as if all of its drafts had held.
struct HeldArgs {
  TensorView draws;        // i32 [S]: of the step
  TensorView tokens;       // i32 [T]: of the step, drafts among them
  TensorView num_drafts;   // i32 [L]
  TensorView first_draft;  // i32 [L]: of tokens
  TensorView first_draw;   // i32 [L]: of draws, one more than drafts; below 0: it drew nothing
  TensorView first_next;   // i32 [L]: of numbers; empty: draws stay where they are
  TensorView numbers;      // i32 [N]
  TensorView at;           // i32 [C]: of numbers; one occurs once
  TensorView line;         // i32 [C]: below 0, the number stays
  TensorView lost = {};    // i32 [L], optional: gets the drafts that do not hold
};

class DraftOps {
 public:
  virtual ~DraftOps() = default;

  // A line's draws are copied to numbers from first_next on, and numbers[at[c]] becomes smaller by
  // those of line[c]'s drafts that do not hold: they do while they are what was drawn there.
  virtual void settle_drafts(const HeldArgs& args, StreamRef stream) = 0;

  // i32 numbers[at[c]] becomes smaller by lost[line[c]]; below 0, it stays. One `at` occurs once.
  virtual void lag_numbers(TensorView numbers, TensorView at, TensorView line, TensorView lost,
                           StreamRef stream) = 0;

  // tokens i32 [S] drawn from logits f32 [S, D] after the filters, whose shares of 1 go to
  // shares[places[i]], f32 [P, D]. With temperature 0, or a place below 0, the best token is taken
  // and no shares are given. From no numbers kNoToken is: all of its share is that of token 0,
  // which is what reading a row of it gives.
  virtual void draw_drafts(TensorView tokens, TensorView shares, TensorView logits,
                           TensorView places, const SamplingArgs& args, StreamRef stream) = 0;
  // Rows of logits f32 [S, V] that verify drafts, in place: afterwards the draft or what replaces
  // it is all that can be drawn. Rows that are no numbers stay.
  virtual void verify_drafts(TensorView logits, const VerifyArgs& args, StreamRef stream) = 0;
};

// Of a backend that has it; others throw std::bad_cast.
DraftOps& draft_ops(Ops& ops);

}  // namespace quire
