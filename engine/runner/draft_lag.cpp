// InputBatch: rows whose plan takes drafts to have held of which only the device knows.

#include <algorithm>

#include "backend/draft_ops.h"
#include "engine/runner/input_batch.h"

namespace quire {

// Last in the pack: a graph's arrays always have the same addresses.
void InputBatch::add_lags(int num_rows) {
  const auto ints = [&](std::size_t count) { return pack_.add<std::int32_t>(count); };
  const auto rows = static_cast<std::size_t>(num_rows);
  std::size_t num_cells = 0;
  for (const Lag& lag : lags_) num_cells += static_cast<std::size_t>(lag.num_tokens) + 2;
  lag_arrays_ = {.num_drafts = ints(rows),
                 .first_draft = ints(rows),
                 .first_draw = ints(rows),
                 .at = ints(num_cells),
                 .line = ints(num_cells)};
  std::ranges::fill(lag_arrays_.num_drafts.host, 0);
  std::ranges::fill(lag_arrays_.first_draft.host, 0);
  std::ranges::fill(lag_arrays_.first_draw.host, -1);
  std::size_t cell = 0;
  for (const Lag& lag : lags_) {
    const auto add = [&](const Ints& array, int index) {
      lag_arrays_.at.host[cell] = pack_.index_of(array) + index;
      lag_arrays_.line.host[cell++] = lag.row;
    };
    lag_arrays_.num_drafts.host[lag.row] = lag.num_drafts;
    lag_arrays_.first_draft.host[lag.row] = lag.first_draft;
    lag_arrays_.first_draw.host[lag.row] = lag.first_draw;
    add(arrays_.seq_lens, lag.row);
    add(arrays_.id_index, lag.first_token);
    for (int i = 0; i < lag.num_tokens; ++i) add(arrays_.positions, lag.first_token + i);
  }
}

// Before expand() and the step's draw, which replace what the step before has left.
void InputBatch::catch_up(StreamRef stream) {
  const auto cells = static_cast<std::int64_t>(pack_.bytes() / sizeof(std::int32_t));
  draft_ops(ops_).settle_drafts(
      {.draws = sampled_tokens(limits_.max_samples()),
       .tokens = ids(limits_.max_num_batched_tokens),
       .num_drafts = lag_arrays_.num_drafts.device,
       .first_draft = lag_arrays_.first_draft.device,
       .first_draw = lag_arrays_.first_draw.device,
       .first_next = {},
       .numbers = pack_.whole<std::int32_t>(static_cast<std::size_t>(cells)),
       .at = lag_arrays_.at.device,
       .line = lag_arrays_.line.device,
       .lost = TensorView(lost_.data(), DType::i32, {lag_arrays_.num_drafts.device.extent(0)})},
      stream);
}

TensorView InputBatch::lost() const {
  return TensorView(lost_.data(), DType::i32, {limits_.max_num_seqs});
}

}  // namespace quire
