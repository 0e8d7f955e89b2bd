#pragma once
// What the models and the sampler ask of hardware: out views first, then inputs, then scalars,
// StreamRef last. An operator allocates nothing, does not wait, and checks shapes with assert.
// Arithmetic is float32 inside whatever the storage dtype. An optional input is absent when its
// view is empty(). The models keep the residual stream, and what is added to it, in f32: sums of
// many layers are rounded once, where a norm hands them to the next matrix. [T] = tokens of the
// step, [R] = requests of the step, [S] = rows that are sampled, V = vocabulary.

#include <cassert>
#include <cstdint>
#include <span>

#include "backend/device.h"
#include "backend/host_rows.h"
#include "backend/ops_heads.h"
#include "backend/ops_latent.h"
#include "backend/ops_linear.h"
#include "backend/ops_moe.h"
#include "backend/ops_sampling.h"
#include "backend/ops_state.h"
#include "backend/ops_tables.h"
#include "backend/ops_traits.h"
#include "backend/tensor.h"

namespace quire {

// Which requests of a step have their first keys in the same pages. An operator may read these once
// for all of a group; its results differ as sums in another order do. Empty: nothing is known.
struct SharedPrefixes {
  TensorView starts;   // i32 [groups + 1]: of each in members; a group may be empty
  TensorView members;  // i32 [at least starts' last]: the request of each new token, by group
  TensorView places;   // i32 [R]: of a request's first token in members
  // i32 [R]: keys in common, of all requests of a group the same: multiples of kSharedKeys, of no
  // request more than it had before this step; 0: in no group
  TensorView lengths;
  int longest = 0;  // new tokens of a request in a group, at most
};
constexpr int kSharedKeys = 128;

// Paged attention over queries of ragged length. Query i of request r has position seq_len −
// query_len + i and sees cached positions [position − window + 1, position] (window 0: from 0). K
// and V of this step are already in the cache.
struct AttentionArgs {
  TensorView out;          // [T, heads, value_dim]
  TensorView q;            // [T, heads, head_dim], rows may be strided
  TensorView k_cache;      // [blocks, block_size, kv_heads, head_dim], block stride may be padded
  TensorView v_cache;      // [blocks, block_size, kv_heads, value_dim]
  TensorView block_table;  // i32 [R, columns]: kernel blocks of each request
  TensorView query_start;  // i32 [R + 1]: first token of each request
  TensorView seq_lens;     // i32 [R]: cached + new tokens
  // f32 [heads], optional: a logit that joins the softmax and has no value
  TensorView sinks;
  SharedPrefixes shared = {};
  CacheScale cache_scale = {};
  float scale = 1.f;
  float soft_cap = 0.f;  // 0: none; else cap · tanh(logit / cap)
  int window = 0;        // tokens, 0: none
  int max_query_len = 0;
  int max_seq_len = 0;
  HostRows host_rows = {};    // empty: operators may not be chosen by it
  TensorView workspace = {};  // u8 [OpsTraits::attention_workspace_bytes()], optional
};

class Ops {
 public:
  virtual ~Ops() = default;

  // What the plan knows of these operators: the same object for a backend and its plan.
  virtual const OpsTraits& traits() const = 0;

  // Between these two, which is while an engine warms up, operators may try on the device what
  // they can choose from: they may wait for it, and write their outputs more than once. What they
  // chose holds from then on. Of ranks that must compute the same, none is asked to.
  virtual void begin_choosing() {}
  virtual void end_choosing() {}

  // out[t] = table[ids[t]]; out [T, H], as table or f32, table [V, H], ids i32 [T].
  virtual void embedding(TensorView out, TensorView table, TensorView ids, StreamRef stream) = 0;
  // The same where table has ids [first, first + its rows) alone; zeros for all others. For ranks,
  // whose sum is the row.
  virtual void embedding_share(TensorView out, TensorView table, std::int64_t first, TensorView ids,
                               StreamRef stream) = 0;
  // out[i] = x[rows[i]], bit for bit; any dtype (token ids too); out [S, H], rows i32 [S].
  virtual void gather_rows(TensorView out, TensorView x, TensorView rows, StreamRef stream) = 0;
  // out = x · weightᵀ (+ bias); out [T, N], x [T, K], weight [N, K], bias [N] optional. x and
  // weight have one dtype, out that or f32, bias as out.
  virtual void linear(TensorView out, TensorView x, TensorView weight, TensorView bias,
                      StreamRef stream) = 0;

  // out = x / rms(x) · (weight + weight_offset), over the last dimension; x [T, H] or [T, heads,
  // D], as out or f32; out may be x.
  virtual void rms_norm(TensorView out, TensorView x, TensorView weight, float eps,
                        float weight_offset, StreamRef stream) = 0;
  // residual += x; out = rms_norm(residual). residual, x, out [T, H]; residual and x each as out or
  // f32.
  virtual void add_rms_norm(TensorView out, TensorView residual, TensorView x, TensorView weight,
                            float eps, float weight_offset, StreamRef stream) = 0;
  // Same shapes; out as a, b as a or f32 or bf16.
  virtual void add(TensorView out, TensorView a, TensorView b, StreamRef stream) = 0;
  // In place.
  virtual void scale(TensorView x, float factor, StreamRef stream) = 0;

  // In place on the first rotary dims of x [T, heads, D]; cos_sin f32 [max position, rotary] holds
  // cos then sin.
  virtual void rope(TensorView x, TensorView positions, TensorView cos_sin, RopeStyle style,
                    StreamRef stream) = 0;
  // out = act(gate) · up; gate_up [T, 2 I] holds gate then up, out [T, I].
  virtual void gated_activation(TensorView out, TensorView gate_up, Activation activation,
                                StreamRef stream) = 0;

  // A product with what lies on either side of it, with the bits that operators one after the other
  // give. False, with nothing done: not of these, and the caller takes them.
  virtual bool fused_linear(const FusedLinearArgs& /*args*/, StreamRef /*stream*/) { return false; }

  // Writes k, v [T, kv_heads, D] to slot[t] = block · block_size + offset; slots i64 [T], −1: skip.
  // v_cache and v may be absent (MLA: k is latent and rotated key, one head).
  virtual void kv_write(TensorView k_cache, TensorView v_cache, TensorView k, TensorView v,
                        TensorView slots, CacheScale scale, StreamRef stream) = 0;
  virtual void prepare_heads(const HeadArgs& args, StreamRef stream) = 0;
  virtual void paged_attention(const AttentionArgs& args, StreamRef stream) = 0;
  // Both, one after the other, with the bits that these give; args.q is heads.q, of which undefined
  // values are left. A token's slot is that of its position in its request's blocks, or −1.
  virtual void attend_new(const HeadArgs& heads, const AttentionArgs& args, StreamRef stream) {
    prepare_heads(heads, stream);
    paged_attention(args, stream);
  }

  // logits f32 [S, V] in place: −inf for what a row may not draw.
  virtual void mask_logits(TensorView logits, const MaskArgs& args, StreamRef stream) = 0;
  virtual void bias_logits(TensorView logits, const BiasArgs& args, StreamRef stream) = 0;
  virtual void penalize_logits(TensorView logits, const PenaltyArgs& args, StreamRef stream) = 0;
  // counts u16 [slots, V], see kSeenInPrompt.
  virtual void set_token_counts(TensorView counts, const TokenCountArgs& args,
                                StreamRef stream) = 0;
  // One more occurrence in the output of each (slots[i], tokens[i]); i32 [N], −1 in either: skip.
  virtual void count_tokens(TensorView counts, TensorView slots, TensorView tokens,
                            StreamRef stream) = 0;
  // tokens i32 [S]; logits f32 [S, V] may be overwritten.
  virtual void sample(TensorView tokens, TensorView logits, const SamplingArgs& args,
                      StreamRef stream) = 0;
  // The k best log-probabilities of each row and that of tokens[i] with its rank (1 = best).
  // top_ids i32 [S, k], top_values f32 [S, k], token_value f32 [S], token_rank i32 [S].
  virtual void log_probs(TensorView top_ids, TensorView top_values, TensorView token_value,
                         TensorView token_rank, TensorView logits, TensorView tokens,
                         StreamRef stream) = 0;

  // out = x, same shapes, converted where the dtypes differ; the last dimension dense, the others
  // may be strided.
  virtual void copy(TensorView out, TensorView x, StreamRef stream) = 0;
  // x[i] = cap · tanh(x[i] / cap), in place.
  virtual void soft_cap(TensorView x, float cap, StreamRef stream) = 0;
  // out = act(x), same shapes; out may be x. Not for activations that need a gate.
  virtual void activation(TensorView out, TensorView x, Activation activation,
                          StreamRef stream) = 0;
  // x *= sigmoid(gate), in place; x [T, H], gate [T, H] or [T, 1], rows may be strided.
  virtual void sigmoid_gate(TensorView x, TensorView gate, StreamRef stream) = 0;
  // One linear per head: out[t, h] = x[t, h] · weight[h]ᵀ; out [T, heads, N], x [T, heads, K],
  // weight [heads, N, K]; rows and heads may be strided.
  virtual void head_linear(TensorView out, TensorView x, TensorView weight, StreamRef stream) = 0;
  // linear() with packed weights; weight.data and weight.scales as its format says. With fp8
  // weights, the bias of an f32 out is bf16 unless x is f32, and a backend may round x to fp8 too.
  // workspace u8 [traits().linear_workspace_bytes()].
  virtual void quantized_linear(TensorView out, TensorView x, const Weight& weight, TensorView bias,
                                TensorView workspace, StreamRef stream) = 0;
  // out[t] = row ids[t] − first of packed integers, or zeros where there is no such row; out [T,
  // K], ids i32 [T].
  virtual void quantized_embedding(TensorView out, const Weight& weight, std::int64_t first,
                                   TensorView ids, StreamRef stream) = 0;
  virtual void mla_attention(const MlaArgs& args, StreamRef stream) = 0;
  // Only of backends whose traits().latent_prompt_bytes() is not 0.
  virtual void mla_prompt_attention(const MlaPromptArgs& /*args*/, StreamRef /*stream*/) {
    assert(false && "latents are attended to absorbed alone");
  }

  virtual void moe_route(const MoeRouteArgs& args, StreamRef stream) = 0;
  virtual void moe_experts(const MoeExpertsArgs& args, StreamRef stream) = 0;

  virtual void causal_conv(const ConvArgs& args, StreamRef stream) = 0;
  virtual void gated_delta_rule(const DeltaRuleArgs& args, StreamRef stream) = 0;
  virtual void selective_scan(const ScanArgs& args, StreamRef stream) = 0;
  // x, gate, out [T, groups, D], x as out or f32, rms over D; weight [D] or [groups, D].
  // norm_first: out = norm(x) · weight · silu(gate) (Qwen3-Next); else out = norm(x · silu(gate)) ·
  // weight (Mamba2).
  virtual void gated_rms_norm(TensorView out, TensorView x, TensorView gate, TensorView weight,
                              float eps, bool norm_first, StreamRef stream) = 0;

  // pages u8 [blocks, page_bytes]; page to[i] = page from[i]; ids i32 [P]. No page is both read and
  // written.
  virtual void copy_blocks(TensorView pages, TensorView to, TensorView from, StreamRef stream) = 0;
  virtual void zero_blocks(TensorView pages, TensorView ids, StreamRef stream) = 0;

  virtual void write_block_tables(std::span<const TableGroup> groups, const TableWrites& writes,
                                  StreamRef stream) = 0;
  // rows = the tables of the step's slots; cells beyond a row's count keep what was there.
  virtual void gather_block_tables(std::span<const TableGroup> groups, const TableRows& rows,
                                   StreamRef stream) = 0;
  // slots[t] = kernel block · kernel_block_size + offset of the token; kPadSlot for tokens of other
  // context-parallel ranks and for padding. Reads the tables, not the gathered rows.
  virtual void slot_mapping(std::span<const TableGroup> groups, const TableRows& rows,
                            const ContextParallel& cp, StreamRef stream) = 0;
};

}  // namespace quire
