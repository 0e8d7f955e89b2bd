#pragma once
// Which tokens the rows of a step may draw: a request's allowed tokens, its bad words, and its
// constraint (engine/structured/mask_queue.h) with its min_tokens, as one mask per row that
// asks for any. Engine thread only. After construction nothing is allocated on the device.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/ops.h"
#include "backend/staged_pack.h"
#include "base/error.h"
#include "engine/request/request.h"

namespace quire {

// What could not be masked: this request ends with this error, others go on.
struct RowFailure {
  RequestId request;
  Error error;
};

class TokenMasks {
 public:
  // max_rows: of a step's logits.
  TokenMasks(Device& device, int max_slots, int max_rows, int vocab_size);

  static bool concern(const SamplingParams& params) {
    return !params.allowed_tokens.empty() || !params.bad_words.empty() || params.constraint;
  }
  void reset(int slot) { always_[slot].clear(); }

  void begin_step();
  // A row that follows the request's tokens and then these drafts; both are looked at by apply().
  void add_row(int row, int slot, const Request& request, std::span<const TokenId> drafts);
  bool empty() const { return rows_.empty(); }
  // Some mask depends on a request's latest tokens: they must be known before apply().
  bool needs_latest_tokens() const { return needs_latest_; }

  // Queued: logits f32 [S, V] in place.
  void apply(Ops& ops, TensorView logits, StreamRef stream);
  // Of the latest apply().
  std::span<const RowFailure> failures() const { return failures_; }
  // Rows of it whose constraint had no mask yet: what is drawn there must not be taken.
  struct LateRow {
    RequestId request;
    std::int32_t slot;
  };
  std::span<const LateRow> late() const { return late_; }

 private:
  using Words = std::span<std::uint32_t>;
  struct Row {
    std::int32_t row, slot;
    const Request* request;
    std::span<const TokenId> drafts;
  };

  std::span<const std::uint32_t> always(int slot, const SamplingParams& params);
  void fill(const Row& row, Words mask);
  void constrain(const Row& row, Words mask);
  void delay_end(const Row& row, Words mask) const;
  bool is_late(const Row& row) const;
  void fail(const Row& row);

  const int vocab_size_;
  std::vector<std::vector<std::uint32_t>> always_;  // by slot, what never changes; empty: not made
  std::vector<Row> rows_;
  std::vector<RowFailure> failures_;
  std::vector<LateRow> late_;
  bool needs_latest_ = false;
  StagedPack pack_;
};

}  // namespace quire
