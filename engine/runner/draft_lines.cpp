// DraftRunner: what of a step each request goes on from.

#include <algorithm>
#include <utility>

#include "engine/runner/draft_runner.h"

namespace quire {

// Known, or just drawn.
TokenId DraftRunner::Line::token_at(int position) const {
  const auto known = row->request->tokens();
  const auto at = static_cast<std::size_t>(position);
  return at < known.size() ? known[at] : drawn[at - known.size()];
}

int DraftRunner::most_drafts(const Request& request, int num_known, int num_open) const {
  const std::int64_t most =
      std::min<std::int64_t>(request.max_total_tokens(), limits_.max_model_len - num_open);
  return static_cast<int>(std::clamp<std::int64_t>(most - num_known - 1, 0, limits_.max_drafts));
}

// Drafts that did not hold are left out, where that is known: their hidden states are not the
// request's. Else their keys and values lie behind it until they are overwritten.
void DraftRunner::read(const BatchPlan& plan, std::span<const TokenId> sampled, int width,
                       std::span<const int> wanted) {
  lines_.clear();
  order_.clear();
  int first = 0, last = -1, draw = 0;
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const BatchRow& row = plan.rows[r];
    const int first_token = std::exchange(first, first + row.num_tokens);
    const int first_draw = row.samples ? std::exchange(draw, draw + 1 + row.num_drafts) : -1;
    if (wanted[r] < 0) continue;
    const auto drawn = sampled.subspan(r * static_cast<std::size_t>(width), width);
    const auto end = std::ranges::find(drawn, -1);
    const int num_drawn = !runs_ahead_  ? static_cast<int>(end - drawn.begin())
                          : row.samples ? 1 + row.num_drafts
                                        : 0;
    Line line{.row = &row,
              .drawn = runs_ahead_ ? drawn : drawn.first(static_cast<std::size_t>(num_drawn)),
              .plan_row = static_cast<int>(r),
              .begin = row.num_computed,
              .count = row.num_tokens - row.num_drafts + std::max(num_drawn - 1, 0),
              .first = first_token,
              .first_draw = first_draw,
              .num_open = runs_ahead_ && row.samples ? row.num_drafts : 0};
    last += line.count;
    line.last = last;
    if (num_drawn > 0)
      line.num_wanted = std::min(
          wanted[r], most_drafts(*row.request, line.context() - line.num_open, line.num_open));
    lines_.push_back(line);
  }
  for (const Line& line : lines_)
    if (line.num_wanted > 0) order_.push_back(&line);
  std::ranges::stable_sort(order_, std::greater<>(), &Line::num_wanted);
}

int DraftRunner::num_wanting(int num_drafts) const {
  return static_cast<int>(std::ranges::count_if(
      order_, [&](const Line* line) { return line->num_wanted >= num_drafts; }));
}

}  // namespace quire
