#pragma once
// Arguments of the mixture-of-experts operators, and weights that are not plain matrices. E =
// experts, k = experts a token is sent to, I = an expert's inner size, H = hidden size.

#include <cstdint>

#include "backend/group_weights.h"
#include "backend/tensor.h"

namespace quire {

enum class Activation : std::uint8_t {
  silu,
  gelu_tanh,
  relu2,          // max(x, 0)²
  clamped_swiglu  // gpt-oss; with a gate only: g = min(gate, limit), u = clamp(up, ±limit), g ·
                  // sigmoid(alpha · g) · (u + 1), alpha 1.702, limit 7 unless said otherwise
};

enum class WeightFormat : std::uint8_t {
  plain,  // data [.., N, K] in f32, bf16 or f16
  mxfp4,  // data u8 [.., N, K / 2]: e2m1 pairs, the lower nibble first; scales u8 [.., N, K / 32]:
          // 2^(s − 127). Published blocks [.., K / 32, 16] have the same bytes.
  fp8_rows,   // data e4m3 [.., N, K]; scales f32 [.., N]: one for a row
  groups,     // data u8 [.., N, group_row_bytes()], tiles as backend/group_weights.h says; N is
              // the output's, rounded up to whole tiles; CPU only
  fragments,  // data u8 [.., N, fragment_row_bytes()], tiles as backend/fragment_weights.h says;
              // N likewise; CUDA only
  fp8_blocks  // data e4m3 [.., N, K]; scales f32 [.., ⌈N / 128⌉, ⌈K / 128⌉]: one for a block of
              // 128 × 128; a row of scales begins at a multiple of 16 bytes
};

// Small integers in tiles.
constexpr bool is_packed(WeightFormat format) {
  return format == WeightFormat::groups || format == WeightFormat::fragments;
}

inline constexpr int kFp8Block = 128;  // rows and columns under one scale

constexpr bool is_fp8(WeightFormat format) {
  return format == WeightFormat::fp8_rows || format == WeightFormat::fp8_blocks;
}

// A matrix [N, K], or one per expert [E, N, K].
struct Weight {
  TensorView data;
  TensorView scales;
  WeightFormat format = WeightFormat::plain;
  GroupFormat group = {};       // of groups and fragments
  TensorView input_scale = {};  // f32 [1], optional: what x is divided by where it becomes fp8 too
};

enum class RouteScore : std::uint8_t { softmax, sigmoid };
enum class GroupScore : std::uint8_t { best, sum_of_best_two };

// score = softmax or sigmoid of the logits, in f32. Experts are chosen by score + bias (ties: the
// lower index), from the top_groups of the groups only; a group is rated by GroupScore over score +
// bias. weight = score of the chosen (without bias), divided by their sum if renormalize, times
// scale. "Top-k of logits, then softmax over them" (gpt-oss, Granite) is softmax with renormalize.
struct MoeRouteArgs {
  TensorView ids;      // out, i32 [T, k], best first
  TensorView weights;  // out, f32 [T, k]
  TensorView logits;   // [T, E]
  TensorView bias;     // f32 [E], optional
  RouteScore score = RouteScore::softmax;
  GroupScore group_score = GroupScore::best;
  int groups = 1;
  int top_groups = 1;
  bool renormalize = false;
  float scale = 1.f;
};

// out[t] = Σ_j weights[t, j] · (down · act(gate_up · x[t] + gate_up_bias) + down_bias) of expert
// ids[t, j]. The sum is made in f32 in the order of j. With fp8 weights a backend may round x and
// what enters down to fp8 too, by 128 elements of a token.
struct MoeExpertsArgs {
  TensorView out;           // [T, H], as x or f32, not x
  TensorView x;             // [T, H]
  TensorView ids;           // i32 [T, k]
  TensorView weights;       // f32 [T, k]
  Weight gate_up;           // [E, 2 I, H]: gate rows, then up rows; without a gate [E, I, H]
  Weight down;              // [E, H, I]
  TensorView gate_up_bias;  // [E, 2 I] or [E, I], optional
  TensorView down_bias;     // [E, H], optional
  Activation activation = Activation::silu;
  bool gated = true;
  float swiglu_alpha = 1.702f;
  float swiglu_limit = 7.f;
  TensorView workspace;  // u8 [OpsTraits::moe_workspace_bytes()]
};

// What decides how much scratch moe_experts() takes.
struct MoeShape {
  int experts = 0;
  int top_k = 0;
  int hidden = 0;
  int intermediate = 0;
  bool gated = true;
  DType dtype = DType::bf16;  // of x
  bool fp8 = false;           // weights
};

}  // namespace quire
