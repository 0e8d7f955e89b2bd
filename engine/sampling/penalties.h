#pragma once
// Penalties of repeated tokens. What a request has seen lies on the device, by slot, and the draw
// itself adds to it: the host sends a request's tokens once, when it takes a slot, and never has to
// know the latest before the next step. Engine thread only. After construction nothing is allocated
// on the device.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/ops.h"
#include "backend/staged_pack.h"
#include "engine/request/request.h"
#include "engine/sampling/list_pieces.h"
#include "engine/sampling/token_counts.h"

namespace quire {

// By row: f32 [S].
struct PenaltyFactors {
  TensorView repetition, frequency, presence;
};

class Penalties {
 public:
  // max_rows: of a step's logits, max_drafts: before one of them.
  Penalties(Device& device, int max_slots, int max_rows, int max_drafts, int vocab_size);

  void reset(int slot);

  void begin_step();
  struct Row {
    std::int32_t row, slot;
    std::span<const TokenId> drafts;  // output that this row follows and the request does not have
    bool is_verified;                 // what is drawn counts when accept() says so
  };
  // A row that draws the token of this position; request and drafts stay as they are until apply().
  // Where the position does not follow the slot's last row, after a reset for one, all of the
  // request's tokens are known on the host.
  void add_row(const Row& row, const Request& request, int position);
  void accept(int slot, std::span<const TokenId> tokens);
  bool empty() const { return rows_.empty(); }

  // Queued, in this order, around the draw: logits f32 [S, V] in place; then what was drawn, i32
  // [S], joins the counts, −1 does not.
  void apply(Ops& ops, ListPieces& pieces, TensorView logits, const PenaltyFactors& factors,
             StreamRef stream);
  void count(Ops& ops, TensorView drawn, StreamRef stream);

 private:
  TensorView table() const;
  void load(Ops& ops, ListPieces& pieces, StreamRef stream);
  void send_counts(Ops& ops, ListPieces& pieces, int slot, const Request& request,
                   StreamRef stream);
  void count_accepted(Ops& ops, ListPieces& pieces, StreamRef stream);
  void stage_rows(std::int64_t num_rows);

  const int vocab_size_;
  Buffer counts_;  // u16 [max_slots, V]
  // By slot: the position that the counts are good for; 0: none.
  static constexpr std::int32_t kAnywhere = -1;  // drafts were verified: as many as were accepted
  std::vector<std::int32_t> next_;
  std::vector<Row> rows_;
  std::vector<std::pair<std::int32_t, const Request*>> unknown_;  // slots to be sent
  std::vector<std::pair<std::int32_t, TokenId>> accepted_;        // by slot, not counted yet
  int num_drafts_ = 0;                                            // most of a row
  TokenCounts seen_;                                              // of the request at hand
  StagedPack pack_;
  StagedPack::Array<std::int32_t> row_ids_, slots_, drafts_, slot_of_row_, zeroed_;
};

}  // namespace quire
