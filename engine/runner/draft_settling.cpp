// DraftRunner: passes that are queued before the host knows which drafts held.

#include <algorithm>

#include "engine/runner/draft_runner.h"

namespace quire {

// Where tokens are drawn from a draft's shares, the host gives each its position.
bool DraftRunner::can_run_ahead() const {
  return sampler_ == nullptr && !observer_ && !device_.is_host_memory();
}

// Rows of a graph beyond the lines have nothing to settle. What a line's drafts decide: where its
// last token is, and where its further drafts stand.
void DraftRunner::add_settling() {
  const auto ints = [&](std::size_t count) { return pack_.add<std::int32_t>(count); };
  const auto num_lines = static_cast<std::size_t>(first_.num_rows);
  std::size_t num_cells = 2 * num_lines;
  for (const Pass& pass : steps_) num_cells += 2 * static_cast<std::size_t>(pass.num_rows);
  settling_ = {.num_drafts = ints(num_lines),
               .first_draft = ints(num_lines),
               .first_draw = ints(num_lines),
               .first_next = ints(num_lines),
               .at = ints(num_cells),
               .line = ints(num_cells)};
  const std::int32_t ids = pack_.index_of(first_.ids);
  for (std::size_t i = 0; i < num_lines; ++i) {
    const Line line = i < lines_.size() ? lines_[i] : Line();
    settling_.num_drafts.host[i] = line.num_open;
    settling_.first_draft.host[i] = line.first + line.count - line.num_open;
    settling_.first_draw.host[i] = line.first_draw;
    settling_.first_next.host[i] = ids + line.last - line.num_open;
  }
  std::size_t cell = 0;
  const auto add = [&](const Ints& array, std::size_t index, std::int32_t line) {
    settling_.at.host[cell] = pack_.index_of(array) + static_cast<std::int32_t>(index);
    settling_.line.host[cell++] = line;
  };
  for (std::size_t i = 0; i < num_lines; ++i) {
    add(last_rows_, i, static_cast<std::int32_t>(i));
    add(last_lens_, i, static_cast<std::int32_t>(i));
  }
  for (const Pass& pass : steps_) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(pass.num_rows); ++i) {
      const bool is_padding = pass.slots.host[i] == kPaddingRow;
      const std::int32_t line = is_padding ? -1 : wanting_.host[i];
      add(pass.positions, i, line);
      add(pass.seq_lens, i, line);
    }
  }
}

// What the step itself was corrected by. Last in the pack, and no part of a graph.
void DraftRunner::add_lags() {
  const auto lags = [&](const Line& line) { return batch_.lags(line.plan_row); };
  const auto lags_in = [&](const Pass& pass, std::size_t i) {
    return i < order_.size() && pass.slots.host[i] != kPaddingRow && lags(*order_[i]);
  };
  std::size_t num_cells = 0;
  for (const Line& line : lines_)
    if (lags(line)) num_cells += static_cast<std::size_t>(line.count) + 2;
  for (const Pass& pass : steps_)
    for (std::size_t i = 0; i < pass.slots.host.size(); ++i) num_cells += lags_in(pass, i) ? 2 : 0;
  lags_ = {.at = pack_.add<std::int32_t>(num_cells), .line = pack_.add<std::int32_t>(num_cells)};
  std::size_t cell = 0;
  const auto add = [&](const Ints& array, std::size_t index, const Line& line) {
    lags_.at.host[cell] = pack_.index_of(array) + static_cast<std::int32_t>(index);
    lags_.line.host[cell++] = line.plan_row;
  };
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const Line& line = lines_[i];
    if (!lags(line)) continue;
    add(first_.seq_lens, i, line);
    add(last_lens_, i, line);
    for (int token = line.last + 1 - line.count; token <= line.last; ++token)
      add(first_.positions, static_cast<std::size_t>(token), line);
  }
  for (const Pass& pass : steps_) {
    for (std::size_t i = 0; i < pass.slots.host.size(); ++i) {
      if (!lags_in(pass, i)) continue;
      add(pass.positions, i, *order_[i]);
      add(pass.seq_lens, i, *order_[i]);
    }
  }
}

void DraftRunner::catch_up() {
  const auto cells = static_cast<std::int64_t>(pack_.bytes() / sizeof(std::int32_t));
  draft_ops(ops_).lag_numbers(
      pack_.whole<std::int32_t>(static_cast<std::size_t>(cells)), lags_.at.device,
      lags_.line.device, batch_.lost(), device_.stream());
}

void DraftRunner::settle(int num_tokens) {
  const auto cells = static_cast<std::int64_t>(pack_.bytes() / sizeof(std::int32_t));
  draft_ops(ops_).settle_drafts(
      {.draws = batch_.sampled_tokens(limits_.max_samples()),
       .tokens = batch_.ids(num_tokens),
       .num_drafts = settling_.num_drafts.device,
       .first_draft = settling_.first_draft.device,
       .first_draw = settling_.first_draw.device,
       .first_next = settling_.first_next.device,
       .numbers = pack_.whole<std::int32_t>(static_cast<std::size_t>(cells)),
       .at = settling_.at.device,
       .line = settling_.line.device},
      device_.stream());
}

}  // namespace quire
