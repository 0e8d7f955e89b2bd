#pragma once
// Logits → tokens, for the rows of one step that sample. Reads each row's SamplingParams, turns
// them into the arrays of backend/ops_sampling.h, queues the operators. Engine thread only. After
// construction nothing is allocated on the device.

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/draft_ops.h"
#include "backend/ops.h"
#include "backend/staged_pack.h"
#include "engine/request/request.h"
#include "engine/sampling/list_pieces.h"
#include "engine/sampling/logit_bias.h"
#include "engine/sampling/penalties.h"
#include "engine/sampling/step_logprobs.h"
#include "engine/sampling/token_masks.h"

namespace quire {

// What the draws of a request depend on, besides logits and position.
struct DrawParams {
  float temperature = 0;  // 0: greedy
  float top_p = 1, min_p = 0;
  std::int32_t top_k = 0;
  std::uint64_t seed = 0;
};

struct SamplerOptions {
  int max_num_seqs = 0;  // slots
  int max_drafts = 0;    // before a row
  int max_rows = 0;      // of a step; 0: max_num_seqs
  int vocab_size = 0;
  bool verifies_drafts = false;  // by rejection sampling: with operators that can
  std::uint64_t seed = 0;  // of requests without one, together with their id
};

class Sampler {
 public:
  Sampler(Device& device, Ops& ops, const SamplerOptions& options);

  // The slot has a new request, or the same one starts over.
  void reset(int slot);

  // The rows of one step, in order; at most this many.
  void begin_step(std::size_t max_rows);
  // position: of the token to draw, which follows the request's tokens and then `drafts`. Those of
  // a row that is verified count as output only when accept() says so.
  void add_row(int slot, const Request& request, int position, std::span<const TokenId> drafts = {},
               bool is_verified = false);
  // Of drafts that were drawn: f32 [places, D], and i32 [D, 1], the token of each; empty: the same.
  void verify_from(TensorView shares, TensorView target_ids);
  // The row that was added last verifies a draft that was drawn by the shares in this place: it is
  // kept or replaced by rejection sampling.
  void verify_by(TokenId draft, int place);
  // Where rows that lag() are told by how much, i32 [lines].
  void lag_by(TensorView lost) { lost_ = lost; }
  // The row that was added last draws for an earlier position, by what this line of them has.
  void lag(int line);
  DrawParams draw_params(const Request& request) const;
  // Does add_row() look at the drafts of a request's rows?
  static bool reads_drafts(const SamplingParams& params);
  // At what stands before them, and at how many they are, so that nothing of it may be open?
  static bool reads_settled(const SamplingParams& params) {
    return reads_drafts(params) || params.min_tokens > 0;
  }
  // What a verified row's drafts and draws turned out to be.
  void accept(int slot, std::span<const TokenId> tokens) { penalties_.accept(slot, tokens); }
  int num_rows() const { return num_rows_; }
  // What some row may draw depends on its latest tokens, so they must be on the host, and in the
  // request, before sample().
  bool needs_latest_tokens() const { return masks_.needs_latest_tokens(); }

  // Queues the draw: tokens i32 [rows] from logits f32 [rows, V], which it may overwrite.
  void sample(TensorView tokens, TensorView logits, StreamRef stream);

  // Of the latest or the next to latest sample(), whose stream has got so far. Ends with the next
  // sample() but one.
  const LogprobRows& logprobs(int turn) const { return logprobs_.rows(turn); }
  int turn() const { return turn_; }  // of the latest sample()
  // Requests of the latest sample() that must end, as nothing can be drawn for them.
  std::span<const RowFailure> failures() const { return masks_.failures(); }
  // Requests of the latest sample() whose draw must not be taken: their masks were not there.
  std::span<const TokenMasks::LateRow> late() const { return masks_.late(); }

 private:
  // What a draw needs of a request's parameters, close together: a step touches every row's.
  struct RowParams {
    float temperature, top_p, min_p, repetition, frequency, presence;
    std::int32_t top_k;
    std::uint64_t seed;
    bool edits;  // bias or min_tokens
    bool masks;
    bool penalties;  // repetition, frequency or presence
    bool logprobs;
  };
  RowParams params_of(const Request& request) const;
  void add_edits(int row, const Request& request, int position);
  void forbid(int row, TokenId token);
  SamplingArgs sampling_args() const;
  void verify_drawn(TensorView logits, StreamRef stream);
  void catch_up(StreamRef stream);

  Ops& ops_;
  const SamplerOptions options_;
  std::vector<std::optional<RowParams>> params_;  // by slot; empty: a new request

  int num_rows_ = 0;
  DraftOps* draft_ops_ = nullptr;
  TensorView draft_shares_, draft_ids_;
  int num_drawn_ = 0;
  TensorView lost_;
  int num_lagging_ = 0;

  // One element per sampled row; one copy brings them all to the device.
  struct RowArrays {
    StagedPack::Array<float> temperature, top_p, min_p, repetition, frequency, presence;
    StagedPack::Array<std::int32_t> top_k;
    StagedPack::Array<std::uint64_t> seed;
    StagedPack::Array<std::int64_t> position;
    StagedPack::Array<std::int32_t> verified, drafts,
        places;  // one element per draft that was drawn
    StagedPack::Array<std::int32_t> lag_at, lag_line;  // one element per row that lags
  };
  StagedPack pack_;
  RowArrays rows_;

  ListPieces pieces_;
  LogitBias bias_;
  Penalties penalties_;
  TokenMasks masks_;
  StepLogprobs logprobs_;
  int turn_ = 0;
};

}  // namespace quire
