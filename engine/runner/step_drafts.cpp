// ModelRunner: the drafts of its steps, and how many of them held.

#include <algorithm>
#include <cassert>

#include "backend/no_token.h"
#include "engine/runner/model_runner.h"

namespace quire {

// May what a row draws depend on more of its drafts than that they hold?
bool ModelRunner::reads_drafts(const BatchPlan& plan) const {
  return drafts_ && std::ranges::any_of(plan.rows, [&](const BatchRow& row) {
           return row.num_drafts > 0 &&
                  (options_.draws_drafts || Sampler::reads_drafts(row.request->sampling()));
         });
}

// Before the next ones take their place.
void ModelRunner::find_drafts(InFlight& step) const {
  if (!drafts_) return;
  step.draft_places.turn = drafts_->turn();
  step.draft_places.columns.clear();
  for (const BatchRow& row : step.plan->rows)
    step.draft_places.columns.push_back(batch_.draft_column(row.slot));
}

// What the device alone knew when the step was planned, and the host has by now.
void ModelRunner::take_drafts(InFlight& step) const {
  if (!drafts_) return;
  const DraftPlaces& places = step.draft_places;
  for (std::size_t r = 0; r < step.plan->rows.size(); ++r) {
    const BatchRow& row = step.plan->rows[r];
    for (int i = 0; i < row.num_drafts; ++i) {
      TokenId& draft = step.drafts[static_cast<std::size_t>(row.first_draft + i)];
      if (draft == kUnknownDraft) draft = drafts_->draft_of(places.turn, places.columns[r], i);
    }
  }
}

std::span<const int> ModelRunner::propose(std::span<const int> wanted) {
  assert(may_propose_ || std::ranges::all_of(wanted, [](int drafts) { return drafts < 0; }));
  const BatchPlan& plan = *collected_->plan;
  const std::span<const int> counts = drafts_->run(plan, collected_tokens_, collected_->width,
                                                   wanted, hidden(plan.num_tokens), workspace_);
  // The next step reads them where they are: on every rank.
  const bool has_drafts = std::ranges::any_of(counts, [](int count) { return count > 0; });
  if (options_.line == nullptr || !has_drafts) return counts;
  options_.line->post(RankMessage::Kind::drafts);
  options_.collectives->broadcast(batch_.drafts(), device_.stream());
  return counts;
}

std::span<const int> ModelRunner::propose_ahead(std::span<const int> wanted) {
  assert(can_propose_ahead() && is_sampled_ && num_in_flight_ > 0);
  assert(may_propose_ || std::ranges::all_of(wanted, [](int drafts) { return drafts < 0; }));
  const BatchPlan& plan = *steps_[(next_ + kMaxInFlight - 1) % kMaxInFlight].plan;
  return drafts_->run(plan, {}, 0, wanted, hidden(plan.num_tokens), workspace_);
}

const DraftRunner& ModelRunner::drafted() const {
  drafts_->wait();
  return *drafts_;
}

void ModelRunner::read_drafts(int slot, int count, std::vector<TokenId>& out) const {
  const DraftRunner& drafts = drafted();
  out.clear();
  for (int i = 0; i < count; ++i) {
    const TokenId draft = drafts.draft(slot, i);
    if (draft == kNoToken) return;
    out.push_back(draft);
  }
}

// Each draw was made as if the drafts before it were the output: it is, while they are what was
// drawn there. At least one holds.
int ModelRunner::num_held(const SampledRow& row, std::span<const TokenId> drafts,
                          const std::int32_t* drawn) {
  int held = 0;
  const auto holds = [&](int i) {
    const TokenId draft = drafts[row.first_draft + i];
    return draft != kNoToken && draft == drawn[i];
  };
  while (held < row.num_drafts && holds(held)) ++held;
  return held + 1;
}

}  // namespace quire
