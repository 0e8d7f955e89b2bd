#pragma once
// Arguments of the recurrent operators. A request's state lives in a block of a state group: read
// from block state_read[r] (−1: zeros), written to state_write[r] after the request's last token
// (−1: not kept); the two may be the same block. A request without tokens in this step is left
// alone. State views have one block per first index; the block stride is the layer's page.
// Where drafts are verified, the state after each of a request's last tokens is kept as well: the
// one after token t goes to block token_states[t] (−1: not kept), and later tokens continue from
// its rounded value, as if a step had ended there. Only requests with several tokens have such
// blocks; a request's reads come before its writes.

#include "backend/tensor.h"

namespace quire {

// Depthwise causal convolution over a request's tokens: out[t, c] = bias[c] + Σ_w weight[c, w] ·
// x[t − width + 1 + w, c], then silu if asked. The rows of the state precede the step's first
// token.
struct ConvArgs {
  TensorView out;          // [T, C], not x
  TensorView x;            // [T, C], rows may be strided
  TensorView weight;       // [C, width]
  TensorView bias;         // [C], optional
  TensorView state;        // [blocks, width − 1, C]: the last inputs, oldest first
  TensorView query_start;  // i32 [R + 1]
  TensorView state_read;   // i32 [R]
  TensorView state_write;  // i32 [R]
  TensorView token_states = {};  // i32 [T], optional
  bool silu = true;
};

// Gated delta rule (Qwen3-Next, Qwen3.5). Key head of value head h is h / (value heads / key
// heads). Per token and value head: q, k are divided by sqrt(Σ x² + 1e-6), q multiplied by
// key_dim^-½; decay = exp(−exp(a_log) · softplus(a + dt_bias)), beta = sigmoid(b); S ← decay · S;
// S ← S + k ⊗ (beta · (v − Sᵀk));  out = Sᵀq.
struct DeltaRuleArgs {
  TensorView out;          // [T, value_heads, value_dim], as q or f32
  TensorView q;            // [T, key_heads, key_dim], rows may be strided
  TensorView k;            // [T, key_heads, key_dim], rows may be strided
  TensorView v;            // [T, value_heads, value_dim], rows may be strided
  TensorView a;            // [T, value_heads], rows may be strided
  TensorView b;            // [T, value_heads], rows may be strided
  TensorView a_log;        // f32 [value_heads]
  TensorView dt_bias;      // f32 [value_heads]
  TensorView state;        // [blocks, value_heads, key_dim, value_dim]
  TensorView query_start;  // i32 [R + 1]
  TensorView state_read;   // i32 [R]
  TensorView state_write;  // i32 [R]
  TensorView token_states = {};  // i32 [T], optional
  int max_query_len = 0;  // tokens of the longest request; below a chunk all go by tokens
};

// Mamba2's scan. Group of head h is h / (heads / groups). Per token and head, with
// d = clamp(softplus(dt + dt_bias), dt_min, dt_max):
// S ← exp(−exp(a_log) · d) · S + d · x ⊗ b;  out = S · c + d_skip · x.
struct ScanArgs {
  TensorView out;          // [T, heads, head_dim], as x or f32
  TensorView x;            // [T, heads, head_dim], rows may be strided
  TensorView b;            // [T, groups, state_dim], rows may be strided
  TensorView c;            // [T, groups, state_dim], rows may be strided
  TensorView dt;           // [T, heads], rows may be strided
  TensorView a_log;        // f32 [heads]
  TensorView dt_bias;      // f32 [heads]
  TensorView d_skip;       // f32 [heads]
  TensorView state;        // [blocks, heads, head_dim, state_dim]
  TensorView query_start;  // i32 [R + 1]
  TensorView state_read;   // i32 [R]
  TensorView state_write;  // i32 [R]
  TensorView token_states = {};  // i32 [T], optional
  int max_query_len = 0;  // tokens of the longest request; below a chunk all go by tokens
  float dt_min = 0.f;
  float dt_max = 3.4e38f;
};

}  // namespace quire
