// Scheduler::commit: what a step brought.

#include <algorithm>
#include <cassert>
#include <utility>

#include "engine/scheduler/scheduler.h"

namespace quire {
namespace {

// A row of StepTokens, without its padding.
std::span<const TokenId> row_of(std::span<const TokenId> tokens, int width, int row) {
  if (tokens.empty()) return {};
  const auto all = tokens.subspan(static_cast<std::size_t>(row) * width, width);
  if (width == 1) return all.first(all[0] != -1);
  const auto end = std::find(all.begin(), all.end(), -1);
  return all.first(static_cast<std::size_t>(end - all.begin()));
}

}  // namespace

const StepResult& Scheduler::commit(const BatchPlan& plan, const StepTokens& tokens,
                                    const TransferNews& transfers) {
  assert(num_in_flight_ > 0 && plan.step == step_ - static_cast<std::uint64_t>(num_in_flight_));
  result_.requests.clear();
  result_.tokens.clear();
  if (!transfers.invalid_blocks.empty()) handle_invalid_blocks(plan, transfers.invalid_blocks);
  const std::size_t num_finished = finished_ids_.size();
  constexpr std::size_t kAhead = 4;  // a request's end is found through the request
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    if (i + 2 * kAhead < plan.rows.size()) plan.rows[i + 2 * kAhead].request->prefetch();
    if (i + kAhead < plan.rows.size()) plan.rows[i + kAhead].request->prefetch_end();
    commit_row(plan, static_cast<int>(i), tokens);
  }
  if (finished_ids_.size() > num_finished) {
    std::erase_if(running_, [](Request* r) { return r->state == RequestState::finished; });
  }
  for (Request* request : failed_) report_end(*request);
  failed_.clear();
  handle_transfers(transfers);
  --num_in_flight_;
  num_rows_in_flight_ -= static_cast<int>(plan.rows.size());
  return result_;
}

void Scheduler::commit_row(const BatchPlan& plan, int index, const StepTokens& tokens) {
  const BatchRow& row = plan.rows[static_cast<std::size_t>(index)];
  Request& request = const_cast<Request&>(*row.request);  // all requests are ours
  --request.num_in_flight;
  if (request.state == RequestState::finished) return;
  const bool has_loaded = row.is_new && std::exchange(request.loads_in_step, false);
  if (request.num_discarded > 0) {
    --request.num_discarded;
    return;
  }
  if (has_loaded && request.state == RequestState::running)
    kv_.cache(request, row.num_computed + row.num_tokens - row.num_drafts);
  if (options_.pooling) return finish_pooled(request, row, index);
  if (connector_ != nullptr && row.num_computed < request.num_prompt() &&
      request.state == RequestState::running && connector_->follows(request))
    connector_->computed(request, tables_of(request), row.num_computed + row.num_tokens);
  const auto sampled = row_of(tokens.sampled, tokens.width, index);
  if (sampled.empty()) return;
  if (row.num_drafts > 0) settle_drafts(request, plan, row, static_cast<int>(sampled.size()));
  RequestProgress& progress = result_.requests.emplace_back();
  progress.request = &request;
  progress.row = index;
  const bool was_running = request.state == RequestState::running;
  append_tokens(request, progress, sampled);
  if (options_.async) {
    request.num_placeholders -= progress.num_tokens;
    if (was_running) kv_.cache(request, request.num_computed - request.num_placeholders);
  }
  if (progress.finish_reason) {
    if (!was_running) leave(request);  // preempted while this step ran
    finish(request, *progress.finish_reason);
  } else if (!options_.async && tokens.draft_width > 0) {
    take_drafts(request, index, tokens);
  }
}

// It ends where its prompt does; the runner has its vector.
void Scheduler::finish_pooled(Request& request, const BatchRow& row, int index) {
  if (!row.samples) return;
  totals_.prompt_tokens += request.num_prompt();
  RequestProgress& progress = result_.requests.emplace_back();
  progress.request = &request;
  progress.row = index;
  progress.first_token = static_cast<std::int32_t>(result_.tokens.size());
  progress.finish_reason = FinishReason::stop;
  if (request.state != RequestState::running) leave(request);  // preempted while this step ran
  finish(request, FinishReason::stop);
}

// Rejected drafts were not computed after all.
void Scheduler::settle_drafts(Request& request, const BatchPlan& plan, const BatchRow& row,
                              int num_sampled) {
  const int num_accepted = num_sampled - 1;
  const int num_rejected = row.num_drafts - num_accepted;
  if (request.num_computed > 0) request.num_computed -= num_rejected;
  if (request.num_placeholders > 0) request.num_placeholders -= num_rejected;
  if (num_rejected > 0 && num_in_flight_ > 1) correct_next_plan(plan, request, num_rejected);
  ++totals_.drafts;
  totals_.draft_tokens += row.num_drafts;
  totals_.accepted_draft_tokens += num_accepted;
}

// Its device knows already.
void Scheduler::correct_next_plan(const BatchPlan& plan, const Request& request, int num_rejected) {
  BatchPlan& next = plans_[(plan.step + 1) % plans_.size()];
  const auto row = std::ranges::find(next.rows, &request, &BatchRow::request);
  if (row == next.rows.end()) return;
  assert(!row->is_new);  // nobody starts in a step that takes somebody's blocks
  row->num_computed -= num_rejected;
}

// Up to the token that ends the request, if one does.
void Scheduler::append_tokens(Request& request, RequestProgress& progress,
                              std::span<const TokenId> sampled) {
  if (request.num_output() == 0) totals_.prompt_tokens += request.num_prompt();
  progress.first_token = static_cast<std::int32_t>(result_.tokens.size());
  for (const TokenId token : sampled) {
    request.append(token);
    result_.tokens.push_back(token);
    ++progress.num_tokens;
    progress.finish_reason = request.stop_check(options_.max_model_len);
    if (!progress.finish_reason) continue;
    if (*progress.finish_reason == FinishReason::stop) progress.stop_token = token;
    break;
  }
  totals_.generation_tokens += progress.num_tokens;
}

void Scheduler::drop_sample(RequestId id) {
  assert(options_.async);
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second->state != RequestState::running) return;
  Request& request = *found->second;
  assert(request.num_placeholders <= request.num_in_flight);  // no drafts among them
  request.num_discarded = request.num_in_flight;
  request.num_placeholders = 0;
  request.drafts.clear();
  --request.num_computed;
}

// Drafts that come while the prompt is still being computed have nothing to follow.
void Scheduler::take_drafts(Request& request, int index, const StepTokens& tokens) {
  const auto drafts = row_of(tokens.drafts, tokens.draft_width, index);
  if (request.in_prefill || request.state != RequestState::running) return request.drafts.clear();
  request.drafts.assign(drafts.begin(), drafts.end());
}

// One more token follows those that hold, and no slot is taken that admission did not count.
int Scheduler::most_drafts(const Request& request) const {
  const std::int64_t most_tokens =
      std::min<std::int64_t>(request.max_total_tokens(), options_.max_model_len);
  const std::int64_t known = request.num_tokens() + request.num_placeholders;
  return static_cast<int>(std::max<std::int64_t>(most_tokens - known - 1, 0));
}

void Scheduler::set_drafts(const Request& request, std::span<const TokenId> drafts) {
  assert(!options_.async || options_.drafts_ahead);
  if (request.state != RequestState::running || request.in_prefill) return;
  const auto count = std::min(drafts.size(), static_cast<std::size_t>(most_drafts(request)));
  auto& own = const_cast<Request&>(request).drafts;  // all requests are ours
  own.assign(drafts.begin(), drafts.begin() + static_cast<std::ptrdiff_t>(count));
}

void Scheduler::report_end(Request& request) {
  --request.num_in_flight;
  RequestProgress& progress = result_.requests.emplace_back();
  progress.request = &request;
  progress.first_token = static_cast<std::int32_t>(result_.tokens.size());
  progress.finish_reason = request.finish_reason;
}

// Loads into these blocks failed, so whatever follows the first of them in a request was computed
// from garbage: it is computed again, or the request fails. Requests that share such a block all
// write it again, with the same content.
void Scheduler::handle_invalid_blocks(const BatchPlan& plan, std::span<const BlockId> invalid) {
  std::vector<Request*> affected;
  const auto spoiled = [&](Request& request, int num_loaded) {
    const int num_valid = kv_.num_tokens_before(request, invalid, num_loaded);
    if (num_valid == num_loaded) return false;
    rewind(request, num_valid);
    affected.push_back(&request);
    return true;
  };
  deferred_.for_each([&](Request& request) {
    if (request.state != RequestState::waiting_for_remote_kv) return;
    const int loaded = request.load_failed ? request.num_computed : request.num_tokens();
    request.load_failed |= spoiled(request, loaded);
  });
  std::vector<Request*> lost;
  for (Request* request : running_) {
    const auto row = std::find_if(plan.rows.begin(), plan.rows.end(),
                                  [&](const BatchRow& r) { return r.request == request; });
    // A row that is to be discarded is of a beginning before this one.
    const bool is_its = row != plan.rows.end() && request->num_discarded == 0;
    const int loaded = is_its ? row->num_computed : request->num_computed;
    if (spoiled(*request, loaded) && request->num_computed == 0) lost.push_back(request);
  }
  if (options_.recompute_failed_loads) {
    for (Request* request : lost) requeue(*request);
    return;
  }
  for (Request* request : affected) {
    fail(*request, {ErrorCode::internal, "its KV cache could not be loaded", {}});
  }
}

// Back to where its KV is good. The steps in flight went on from what was not there.
void Scheduler::rewind(Request& request, int num_valid) {
  if (!kv_.rewind(request, num_valid)) num_valid = 0;  // its window has moved on: all over again
  request.num_external = std::max(0, request.num_external - (request.num_computed - num_valid));
  request.num_computed = num_valid;
  if (request.state != RequestState::running) return;
  request.num_discarded = request.num_in_flight;
  request.num_placeholders = 0;
  request.drafts.clear();
}

void Scheduler::handle_transfers(const TransferNews& transfers) {
  for (const RequestId id : transfers.received) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) continue;
    Request& request = *found->second;
    if (request.state == RequestState::waiting_for_remote_kv) request.load_done = true;
    if (request.state == RequestState::finished) release(request);
  }
  for (const RequestId id : transfers.sent) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) continue;
    if (found->second->state == RequestState::finished) release(*found->second);
  }
}

}  // namespace quire
