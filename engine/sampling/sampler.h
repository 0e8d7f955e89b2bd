#pragma once
// Logits → tokens, for the rows of one step that sample. Reads each row's SamplingParams, turns
// them into the arrays of SamplingArgs and LogitEdits, queues the operators. Engine thread only.
//
// A steady step allocates nothing; bias lists, penalties and log-probabilities grow their buffers
// to what was needed so far.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/ops.h"
#include "backend/staged_array.h"
#include "backend/staged_pack.h"
#include "engine/request/request.h"
#include "engine/sampling/token_counts.h"

namespace quire {

struct SamplerOptions {
  int max_num_seqs = 0;
  int vocab_size = 0;
  std::uint64_t seed = 0;  // of requests without one, together with their id
};

// Log-probabilities of the rows that asked for them, on the host: k best of each, and the chosen.
struct LogprobRows {
  int k = 0;
  std::span<const std::int32_t> top_ids;  // [rows, k]
  std::span<const float> top_values;      // [rows, k]
  std::span<const float> chosen_values;   // [rows]
  std::span<const std::int32_t> ranks;    // [rows], 1 = most probable
  std::span<const std::int32_t> row_of;   // by sampled row: its row here, −1: did not ask
};

class Sampler {
 public:
  Sampler(Device& device, Ops& ops, const SamplerOptions& options);

  // The slot has a new request, or the same one starts over.
  void reset(int slot);

  // The rows of one step, in order.
  void begin_step();
  void add_row(int slot, const Request& request, int position);  // of the token to draw
  int num_rows() const { return num_rows_; }
  // Some row depends on its own latest tokens, so they must be on the host before the next step.
  bool needs_latest_tokens() const { return !penalized_.empty(); }

  // Queues the draw: tokens i32 [rows] from logits f32 [rows, V], which it may overwrite.
  void sample(TensorView tokens, TensorView logits, StreamRef stream);

  // Of the latest or the next to latest sample(), whose stream has got so far. Ends with the next
  // sample() but one.
  const LogprobRows& logprobs(int turn) const { return results_[turn].rows; }
  int turn() const { return turn_; }  // of the latest sample()

 private:
  // What a draw needs of a request's parameters, close together: a step touches every row's.
  struct RowParams {
    float temperature, top_p, min_p, repetition, frequency, presence;
    std::int32_t top_k;
    std::uint64_t seed;
    bool edits;      // bias, allowed tokens or min_tokens
    bool penalties;  // repetition, frequency or presence
    bool logprobs;
  };
  struct Slot {
    TokenCounts counts;
    int num_counted = 0;  // of the request's tokens
  };
  // Where log-probabilities of one step land.
  struct LogprobBuffers {
    Buffer on_device;
    Buffer on_host;
    std::vector<std::int32_t> row_of;
    LogprobRows rows;
  };

  RowParams params_of(const Request& request) const;
  void add_edits(int row, const Request& request, int position);
  void count_tokens(Slot& slot, const Request& request);
  void forbid(int row, TokenId token);
  LogitEdits upload_edits(StreamRef stream);
  SamplingArgs sampling_args() const;
  void keep_raw_logits(TensorView logits, StreamRef stream);
  void compute_logprobs(TensorView tokens, StreamRef stream);

  Device& device_;
  Ops& ops_;
  const SamplerOptions options_;
  std::vector<Slot> slots_;
  std::vector<std::optional<RowParams>> params_;  // by slot; empty: a new request

  int num_rows_ = 0;
  bool has_edits_ = false;

  // One element per sampled row; one copy brings them all to the device.
  struct RowArrays {
    StagedPack::Array<float> temperature, top_p, min_p, repetition, frequency, presence;
    StagedPack::Array<std::int32_t> top_k;
    StagedPack::Array<std::uint64_t> seed;
    StagedPack::Array<std::int64_t> position;
  };
  StagedPack pack_;
  RowArrays rows_;

  // Lists of (row, token): collected here, then uploaded.
  std::vector<std::int32_t> bias_rows_, bias_tokens_;
  std::vector<float> bias_values_;
  std::vector<std::uint8_t> is_allowed_;  // [V], of the row at hand
  struct PenalizedRow {
    std::int32_t row;
    std::int32_t slot;
  };
  std::vector<PenalizedRow> penalized_;
  StagedArray<std::int32_t> bias_row_, bias_token_, seen_row_, seen_token_, seen_count_;
  StagedArray<float> bias_value_;

  std::vector<std::int32_t> logprob_rows_;  // sampled rows that asked
  int logprob_k_ = 0;
  StagedArray<std::int32_t> logprob_row_;
  Buffer raw_logits_;     // f32 [rows that asked, V], before edits
  Buffer chosen_tokens_;  // i32 [rows that asked]
  std::array<LogprobBuffers, 2> results_;
  int turn_ = 0;
};

}  // namespace quire
