#include "engine/core/drafting.h"

#include <algorithm>
#include <utility>

#include "engine/speculative/ngram_drafter.h"

namespace quire {
namespace {

using PerfClock = std::chrono::steady_clock;

double seconds_since(PerfClock::time_point start) {
  return std::chrono::duration<double>(PerfClock::now() - start).count();
}

// Its prompt is computed, and it had no more than a token and its drafts.
bool is_decode(const BatchRow& row) {
  return row.samples && !row.is_new && row.num_tokens == 1 + row.num_drafts;
}

// Of the drafts that the row had.
int num_held(const BatchRow& row, std::span<const TokenId> sampled) {
  const auto drawn = sampled.first(1 + static_cast<std::size_t>(row.num_drafts));
  const auto end = std::ranges::find(drawn, TokenId{-1});
  return std::max(static_cast<int>(end - drawn.begin()) - 1, 0);
}

// Does one of these tokens end the request? Where this errs, time is lost and nothing else.
bool ends(const Request& request, std::span<const TokenId> drawn) {
  const SamplingParams& sampling = request.sampling();
  const auto ends_with = [&](TokenId token) {
    const auto has = [&](const auto& tokens) {
      return std::ranges::find(tokens, token) != tokens.end();
    };
    return has(sampling.stop_token_ids) || (!sampling.ignore_eos && has(request.eos_token_ids()));
  };
  return std::ranges::any_of(drawn, ends_with);
}

}  // namespace

bool Drafting::can_overlap(const EngineConfig& config, bool computes_on_host) {
  return config.speculative.uses_draft_model() && !computes_on_host &&
         config.scheduler.async_scheduling.value_or(true);
}

bool Drafting::can_leave_open(const EngineConfig& config, const KvPlan& kv) {
  const auto& groups = kv.groups();
  const bool keeps_states = std::ranges::any_of(
      groups, [](const KvGroup& group) { return keeps_state(group.spec.kind); });
  return config.speculative.draft_sampling == DraftSampling::greedy && !keeps_states &&
         config.parallel.tensor_parallel_size == 1 && config.kv_transfer.role == KvRole::none;
}

Drafting::Drafting(const EngineConfig& config)
    : max_drafts_(config.speculative.num_speculative_tokens),
      has_model_(config.speculative.uses_draft_model()),
      is_adaptive_(config.adapts_drafts()),
      hands_over_(config.kv_transfer.prefills()),
      pacer_({.max_num_seqs = config.scheduler.max_num_seqs,
              .max_drafts = max_drafts_,
              .adaptive = is_adaptive_,
              .disable_by_batch_size = config.speculative.disable_by_batch_size,
              .has_model = has_model_}),
      positions_(static_cast<std::size_t>(max_drafts_)),
      choices_(is_on() ? 1 + static_cast<std::size_t>(max_drafts_) : 0) {
  const SpeculativeConfig& drafts = config.speculative;
  if (drafts.method == DraftMethod::ngram)
    drafter_ = std::make_unique<NgramDrafter>(drafts.prompt_lookup_min, drafts.prompt_lookup_max);
}

// A pass over the latest tokens of so many requests takes about what one over such a prompt takes.
void Drafting::learn(const ModelRunner::PromptTime& time) {
  DraftCosts& costs = pacer_.costs();
  const double further = time.drafting_one / std::max(max_drafts_, 1);
  const double pass = std::max(time.drafting - (max_drafts_ - 1) * further, further);
  for (int i = 0; i < DraftCosts::kKnown; ++i) {
    costs.add_step(time.num_tokens, time.seconds);
    if (!has_model_) continue;
    costs.add_drafting(time.num_tokens, max_drafts_, max_drafts_ * pass);
    costs.add_intake(time.num_tokens, std::max(time.drafting - time.drafting_one, 0.0));
  }
}

void Drafting::begin(const BatchPlan& plan) {
  if (!is_on()) return;
  begins_apart_ = num_under_way_ == 0;
  bool goes_on = true;
  for (const BatchRow& row : plan.rows) {
    if (!row.is_new) continue;
    goes_on = false;
    const Request& request = *row.request;
    const auto most_output = std::min<std::int64_t>(
        request.max_total_tokens() - request.num_tokens(), Prospect().most_output);
    pacer_.start(row.slot, static_cast<int>(plan.rows.size()),
                 {.num_intake = request.num_tokens() - row.num_computed,
                  .most_output = static_cast<int>(most_output)});
  }
  if (!goes_on) begun_ = PerfClock::now();
}

// Counted as the scheduler does: before a stop cuts what was accepted.
void Drafting::settle(const BatchPlan& plan, const StepTokens& tokens) {
  if (!is_on() || plan.empty()) return;
  const double seconds = seconds_since(begun_);
  const auto width = static_cast<std::size_t>(tokens.width);
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const BatchRow& row = plan.rows[r];
    if (row.num_drafts == 0 || row.request->finish_reason) continue;  // aborted meanwhile
    const int held = num_held(row, tokens.sampled.subspan(r * width, width));
    pacer_.settle(row.slot, row.num_drafts, held);
    for (int i = 0; i < held; ++i) ++positions_[static_cast<std::size_t>(i)].accepted;
  }
  // Of what overlaps, a step takes less: it would be held against drafts that are waited for.
  const bool is_apart = under_way_.front().is_apart;
  if (!is_behind_drafts_ && is_apart && std::ranges::all_of(plan.rows, is_decode)) {
    pacer_.compare(plan.num_tokens, drafting_seconds_ + seconds);
    pacer_.costs().add_step(plan.num_tokens, seconds);
  }
  begun_ = PerfClock::now();
}

void Drafting::choose(int num_running) {
  wanted_.resize(rows_.size());
  pacer_.choose(rows_, num_running, wanted_);
  for (std::size_t i = 0; i < rows_.size(); ++i)
    if (!rows_[i].in_prefill && !rows_[i].is_ending)
      ++choices_[static_cast<std::size_t>(std::max(wanted_[i], 0))].rows;
}

PacedRow Drafting::paced(const BatchRow& row, int num_held, int num_open,
                         const ModelRunner& runner) const {
  const int known = row.num_computed + row.num_tokens - row.num_drafts + 1 + num_held;
  PacedRow paced{.slot = row.slot,
                 .most = row.samples ? runner.most_drafts(*row.request, known, num_open) : 0,
                 .in_prefill = !row.samples};
  paced.is_ending = row.samples && paced.most == 0;
  return paced;
}

void Drafting::propose_chosen(const BatchPlan& plan) {
  choose(static_cast<int>(plan.rows.size()));
  if (hands_over_)
    for (int& wanted : wanted_) wanted = std::max(wanted, 0);  // taken in, if nothing else
  for (std::size_t r = 0; r < plan.rows.size(); ++r)
    if (plan.rows[r].request->finish_reason) wanted_[r] = -1;
}

// Where more drafts hold than are known to, the scheduler cuts those that follow.
void Drafting::propose_ahead(const BatchPlan& plan, ModelRunner& runner) {
  UnderWay& step = under_way_.at(static_cast<std::size_t>(num_under_way_++));
  step = {.is_apart = begins_apart_};
  if (!has_model_ || plan.empty()) return;
  const bool rests = !may_propose();  // then the choice is nobody, whatever is drawn
  if (!rests && (!is_behind_drafts_ || is_measured_next() || !runner.can_propose_ahead())) return;
  rows_.clear();
  for (const BatchRow& row : plan.rows) rows_.push_back(paced(row, 0, row.num_drafts, runner));
  propose_chosen(plan);
  const bool is_idle = std::ranges::all_of(wanted_, [](int wanted) { return wanted < 0; });
  step.ahead = is_idle ? Ahead::idle : Ahead::drafts;
  if (is_idle) {
    none_.assign(plan.rows.size(), 0);
    proposed_ = none_;
    return;
  }
  ++since_waited_;
  proposed_ = runner.propose_ahead(wanted_);
}

bool Drafting::leaves_open(const BatchPlan& plan) const {
  const UnderWay& step = under_way_.at(static_cast<std::size_t>(num_under_way_ - 1));
  return step.ahead == Ahead::drafts ||
         std::ranges::any_of(plan.rows, [](const BatchRow& row) { return row.num_drafts > 0; });
}

bool Drafting::give_ahead(const BatchPlan& plan, Scheduler& scheduler, bool may_leave_open) {
  UnderWay& step = under_way_.at(static_cast<std::size_t>(num_under_way_ - 1));
  if (step.ahead == Ahead::no || (leaves_open(plan) && !may_leave_open)) return false;
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    drafts_.assign(static_cast<std::size_t>(proposed_[r]), kUnknownDraft);
    scheduler.set_drafts(*plan.rows[r].request, drafts_);
  }
  return step.is_given = true;
}

void Drafting::propose(const BatchPlan& plan, const StepTokens& tokens, ModelRunner& runner) {
  drafting_seconds_ = 0;
  is_given_ = false;
  if (!plan.empty() && num_under_way_ > 0) {
    const UnderWay step = std::exchange(under_way_.front(), under_way_.back());
    --num_under_way_;
    is_given_ = step.is_given;
    if (step.ahead != Ahead::no) {
      is_behind_drafts_ = step.ahead == Ahead::drafts;
      return;
    }
  }
  proposed_ = {};
  if (!has_model_ || plan.empty()) return;
  rows_.clear();
  const auto width = static_cast<std::size_t>(tokens.width);
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const BatchRow& row = plan.rows[r];
    const auto own = tokens.sampled.subspan(r * width, width);
    const int held = num_held(row, own);
    PacedRow& one = rows_.emplace_back(paced(row, held, 0, runner));
    one.is_ending |=
        row.samples && ends(*row.request, own.first(1 + static_cast<std::size_t>(held)));
  }
  propose_chosen(plan);
  const auto start = PerfClock::now();
  proposed_ = runner.propose(wanted_);
  const bool is_idle = std::ranges::all_of(wanted_, [](int wanted) { return wanted < 0; });
  is_behind_drafts_ = !is_idle && !waits(runner);
  if (is_idle || is_behind_drafts_) return;
  runner.wait_for_drafts();
  drafting_seconds_ = seconds_since(start);
  count_costs(plan, drafting_seconds_);
  begun_ = PerfClock::now();
}

// The next step is planned while a device drafts, and what both take is measured now and then.
bool Drafting::waits(const ModelRunner& runner) {
  if (runner.computes_on_host()) return true;
  if (!is_measured_next()) {
    ++since_waited_;
    return false;
  }
  ++num_waited_;
  since_waited_ = 0;
  return true;
}

bool Drafting::is_measured_next() const {
  constexpr int kFirst = 32, kEvery = 8;
  return is_adaptive_ && (num_waited_ < kFirst || since_waited_ + 1 >= kEvery);
}

// Of a model's passes. Beside prompts, what is more than drafts take is the intake.
void Drafting::count_costs(const BatchPlan& plan, double seconds) {
  int num_rows = 0, most = 0, num_drafting = 0, num_intake = 0;
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    if (wanted_[r] < 0) continue;
    ++num_rows;
    num_drafting += wanted_[r] > 0;
    most = std::max(most, wanted_[r]);
    if (!is_decode(plan.rows[r])) num_intake += plan.rows[r].num_tokens;
  }
  if (num_intake == 0) {
    if (most > 0) pacer_.costs().add_drafting(num_rows, most, seconds);
    return;
  }
  const double drafting = most > 0 ? pacer_.costs().drafting(num_drafting, most) : 0;
  pacer_.costs().add_intake(num_intake, std::max(seconds - drafting, 0.0));
}

// Guesses first: who has none needs no share of the step.
void Drafting::propose_on_host(const StepResult& result, const Scheduler& scheduler) {
  rows_.clear();
  guesses_.resize(std::max(guesses_.size(), result.requests.size()));
  for (const RequestProgress& progress : result.requests) {
    const Request& request = *progress.request;
    if (progress.finish_reason || request.slot < 0) continue;
    std::vector<TokenId>& guess = guesses_[rows_.size()];
    drafter_->propose(request, std::min(max_drafts_, scheduler.most_drafts(request)), guess);
    rows_.push_back({.slot = request.slot, .most = static_cast<int>(guess.size())});
  }
  choose(static_cast<int>(scheduler.running().size()));
}

void Drafting::give(const StepResult& result, Scheduler& scheduler, const ModelRunner& runner) {
  if (!is_on()) return;
  if (!has_model_) propose_on_host(result, scheduler);
  std::size_t row = 0;
  for (const RequestProgress& progress : result.requests) {
    if (progress.finish_reason) pacer_.finish(progress.request->num_output());
    if (is_given_ || progress.finish_reason || (!has_model_ && progress.request->slot < 0))
      continue;
    if (!has_model_) {
      drafts_ = guesses_[row];
      drafts_.resize(static_cast<std::size_t>(std::max(wanted_[row++], 0)));
    } else {
      const int count = proposed_[static_cast<std::size_t>(progress.row)];
      // Its masks are made for these very drafts.
      if (count > 0 && progress.request->constraint != nullptr && progress.request->slot >= 0) {
        runner.read_drafts(progress.request->slot, count, drafts_);
      } else {
        drafts_.assign(static_cast<std::size_t>(count), kUnknownDraft);
      }
    }
    scheduler.set_drafts(*progress.request, drafts_);
  }
}

void Drafting::report(EngineStats& stats) const {
  stats.draft_positions = positions_;
  stats.draft_choices = choices_;
}

}  // namespace quire
