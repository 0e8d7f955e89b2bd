#pragma once
// Changes to one step's logits, as lists of (row, token): collected on the host, applied on the
// device. The lists have no limit (a request may allow few of all tokens; penalties look at a whole
// context), the memory on their way has: long ones go in pieces. Engine thread only.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/ops.h"
#include "backend/staged_pack.h"
#include "engine/sampling/token_counts.h"

namespace quire {

// What a row's seen tokens cost, by row: f32 [S].
struct Penalties {
  TensorView repetition, frequency, presence;
};

class LogitEditor {
 public:
  LogitEditor(Device& device, Ops& ops, int max_num_seqs, int vocab_size);

  void begin_step();
  void add_bias(int row, TokenId token, float bias);  // −inf forbids
  // counts stay as they are until apply().
  void add_seen(int row, const TokenCounts& counts);
  bool empty() const { return bias_rows_.empty() && seen_.empty(); }
  bool has_seen() const { return !seen_.empty(); }

  // logits f32 [S, V] in place.
  void apply(TensorView logits, const Penalties& penalties, StreamRef stream);

 private:
  struct Seen {
    std::int32_t row;
    const TokenCounts* counts;
  };
  // One piece on its way; values are biases or counts.
  template <class Value>
  struct Piece {
    StagedPack::Array<std::int32_t> rows, tokens;
    StagedPack::Array<Value> values;
  };

  template <class Value>
  Piece<Value> begin_piece(std::size_t size);
  void apply_piece(TensorView logits, const LogitEdits& edits, StreamRef stream);
  void apply_bias(TensorView logits, const LogitEdits& penalties, StreamRef stream);
  void apply_seen(TensorView logits, const LogitEdits& penalties, StreamRef stream);

  Ops& ops_;
  const std::size_t piece_size_;  // entries
  std::vector<std::int32_t> bias_rows_, bias_tokens_;
  std::vector<float> bias_values_;
  std::vector<Seen> seen_;
  std::size_t num_seen_ = 0;  // entries
  StagedPack pack_;
  std::array<std::unique_ptr<Event>, 2> uploaded_;  // by the pack's turn
  int turn_ = 0;
};

}  // namespace quire
