#include "server/metrics/choice_tracker.h"

#include <algorithm>
#include <utility>

namespace quire {

namespace {

double seconds(Clock::duration duration) {
  return std::max(0.0, std::chrono::duration<double>(duration).count());
}

// Of two points of which either may never have come.
double seconds_between(Clock::time_point from, Clock::time_point to) {
  if (from == Clock::time_point() || to == Clock::time_point()) return 0;
  return seconds(to - from);
}

}  // namespace

ChoiceTracker::ChoiceTracker(Metrics& metrics, EngineId engine, Clock::time_point arrival,
                             int prompt_tokens, int max_tokens, int n,
                             std::shared_ptr<SiblingChoices> siblings)
    : metrics_(&metrics),
      engine_(engine),
      arrival_(arrival),
      siblings_(siblings ? std::move(siblings) : std::make_shared<SiblingChoices>()) {
  ++siblings_->running;
  sample_.prompt_tokens = prompt_tokens;
  sample_.max_tokens = max_tokens;
  sample_.n = n;
}

ChoiceTracker::ChoiceTracker(ChoiceTracker&& other) noexcept
    : metrics_(std::exchange(other.metrics_, nullptr)),
      engine_(other.engine_),
      sample_(other.sample_),
      arrival_(other.arrival_),
      last_token_(other.last_token_),
      times_(other.times_),
      siblings_(std::move(other.siblings_)),
      ended_(other.ended_) {}

ChoiceTracker::~ChoiceTracker() {
  if (metrics_ && !ended_) on_end(RequestEnd::abort);
}

void ChoiceTracker::on_output(const RequestOutput& output, std::span<const Clock::time_point> times,
                              int num_tokens) {
  times_ = output.times;
  if (output.token_ids.empty() && output.pooled.empty()) return;
  int num_before = sample_.generation_tokens;
  if (num_before == 0) {
    sample_.cached_tokens = output.num_cached_tokens;
    metrics_->prompt_done(engine_,
                          {.all = sample_.prompt_tokens,
                           .cached = sample_.cached_tokens,
                           .external = output.num_external_tokens},
                          seconds(Clock::now() - arrival_));
  }
  // However many tokens come at once: each has its own gap.
  for (std::size_t i = 0; i < times.size() && num_before < num_tokens; ++i, ++num_before) {
    if (num_before > 0) metrics_->observe_token_gap(engine_, seconds(times[i] - last_token_));
    last_token_ = times[i];
  }
  sample_.generation_tokens = num_tokens;
}

void ChoiceTracker::on_end(RequestEnd end) {
  ended_ = true;
  sample_.end = end;
  sample_.end_to_end = seconds(Clock::now() - arrival_);
  sample_.queue = seconds_between(times_.queued, times_.scheduled);
  sample_.prefill = seconds_between(times_.scheduled, times_.first_token);
  sample_.decode = seconds_between(times_.first_token, times_.last_token);
  siblings_->most_tokens = std::max(siblings_->most_tokens, sample_.generation_tokens);
  sample_.max_generation_tokens = siblings_->most_tokens;
  if (--siblings_->running > 0) sample_.n = 0;  // the last one says it
  metrics_->request_done(engine_, sample_);
}

}  // namespace quire
