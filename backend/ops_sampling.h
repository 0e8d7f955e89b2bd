#pragma once
// From logits to tokens. Rows are rows of logits f32 [S, V]; a row that an operator's list names
// occurs in it once.

#include <cstdint>

#include "backend/tensor.h"

namespace quire {

// Everything a draw depends on, one entry per sampled row; host fills it, device reads it.
struct SamplingArgs {
  TensorView temperature;  // f32 [S]; 0: greedy
  TensorView top_k;        // i32 [S]; 0: off
  TensorView top_p;        // f32 [S]; 1: off
  TensorView min_p;        // f32 [S]; 0: off
  TensorView seed;         // u64 [S]
  // i64 [S]: index of the token drawn, so a draw depends on (seed, position) alone
  TensorView position;
};

// Which tokens rows may draw: bit t % 32 of word t / 32 is set where token t is allowed.
struct MaskArgs {
  TensorView words;  // u32 [M, ceil(V / 32)]
  TensorView rows;   // i32 [M]
};

// Values added to individual logits.
struct BiasArgs {
  TensorView rows;    // i32 [B]; a (row, token) may occur several times
  TensorView tokens;  // i32 [B]
  TensorView values;  // f32 [B]; −inf forbids
};

// How often a request has seen a token, in 16 bits: the highest is set if it is in the prompt, the
// others count it in the output and saturate.
inline constexpr std::uint16_t kSeenInPrompt = 0x8000;
inline constexpr std::uint16_t kMostSeen = 0x7fff;

// Entries of the table to set outright.
struct TokenCountArgs {
  TensorView slots;   // i32 [N]
  TensorView tokens;  // i32 [N]; a (slot, token) occurs once
  TensorView counts;  // i32 [N]: see kSeenInPrompt
};

// For tokens seen so far the repetition penalty divides or multiplies the logit, frequency and
// presence penalties are subtracted (vLLM's order and meaning).
struct PenaltyArgs {
  TensorView counts;      // u16 [slots, V]: see kSeenInPrompt
  TensorView rows;        // i32 [P]
  TensorView slots;       // i32 [P]: of counts
  TensorView drafts;      // i32 [P, D], optional: output of this row that is not counted; −1 pads
  TensorView repetition;  // f32 [S]
  TensorView frequency;   // f32 [S]
  TensorView presence;    // f32 [S]
};

}  // namespace quire
