#pragma once
// Drafts between two steps: how many each request gets, who proposes them, what held, and what all
// that took. On the engine's thread, in this order: begin() before a step runs, propose_ahead()
// when it is queued, settle() when it ran, propose() of a model before its commit, give() after.
// After give_ahead() the next step may begin before this one is settled.

#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "engine/config.h"
#include "engine/runner/model_runner.h"
#include "engine/scheduler/scheduler.h"
#include "engine/speculative/draft_pacer.h"
#include "engine/speculative/drafter.h"

namespace quire {

class Drafting {
 public:
  explicit Drafting(const EngineConfig& config);

  // May steps overlap at all? Not where the host computes, nor where prompt lookup drafts, which
  // needs the drawn tokens on the host, nor where the configuration does not want it.
  static bool can_overlap(const EngineConfig& config, bool computes_on_host);
  // May they overlap while drafts are open? Not where drafts are drawn from shares, where a
  // recurrent state is read by which drafts held, or where ranks or a peer get what the host knows.
  static bool can_leave_open(const EngineConfig& config, const KvPlan& kv);
  // Does this request keep drafts from being open? Its draws depend on what is settled before.
  static bool keeps_apart(const SamplingParams& params) { return Sampler::reads_settled(params); }

  bool is_on() const { return max_drafts_ > 0; }
  int most() const { return max_drafts_; }  // of a request
  void use(std::unique_ptr<Drafter> drafter) { drafter_ = std::move(drafter); }

  // Takes what warm-up measured, before all steps.
  void learn(const ModelRunner::PromptTime& time);
  void begin(const BatchPlan& plan);
  // May a model draft behind the step that begin() saw?
  bool may_propose() const { return has_model_ && (hands_over_ || pacer_.may_draft()); }
  // Queues the draft model's passes before the step is collected, where the device need not wait
  // for the host to know what held, and what the step takes is not measured.
  void propose_ahead(const BatchPlan& plan, ModelRunner& runner);
  // Tells the scheduler how many drafts follow the step before it is collected, so that the next
  // one may begin. False: it is not known, or drafts would be open and may_leave_open forbids it.
  bool give_ahead(const BatchPlan& plan, Scheduler& scheduler, bool may_leave_open);
  // Are there drafts in it, or behind it, of which the host does not know what held?
  bool leaves_open(const BatchPlan& plan) const;
  void settle(const BatchPlan& plan, const StepTokens& tokens);
  void propose(const BatchPlan& plan, const StepTokens& tokens, ModelRunner& runner);
  void give(const StepResult& result, Scheduler& scheduler, const ModelRunner& runner);

  void report(EngineStats& stats) const;
  const DraftForecast& forecast() const { return pacer_.forecast(); }

 private:
  void choose(int num_running);
  void propose_on_host(const StepResult& result, const Scheduler& scheduler);
  bool waits(const ModelRunner& runner);
  bool is_measured_next() const;
  PacedRow paced(const BatchRow& row, int num_held, int num_open, const ModelRunner& runner) const;
  void propose_chosen(const BatchPlan& plan);
  void count_costs(const BatchPlan& plan, double seconds);

  const int max_drafts_;
  const bool has_model_, is_adaptive_;
  const bool hands_over_;  // others go on from what is kept here, with drafts of their own
  std::unique_ptr<Drafter> drafter_;  // null: a model proposes
  DraftPacer pacer_;
  // What a step takes begins where the step before ended, as that has to be reported and this one
  // to be planned.
  std::chrono::steady_clock::time_point begun_;
  int num_waited_ = 0, since_waited_ = 0;  // steps whose drafts were waited for; since the last
  double drafting_seconds_ = 0;            // before the step
  bool is_behind_drafts_ = false;          // the step waits for drafts: it is no measure of steps
  enum class Ahead : std::uint8_t { no, idle, drafts };  // propose() came before its end
  struct UnderWay {
    Ahead ahead = Ahead::no;
    bool is_given = false;
    bool is_apart = false;  // nothing was under way when it began
  };
  std::array<UnderWay, ModelRunner::kMaxInFlight> under_way_ = {};  // steps, oldest first
  int num_under_way_ = 0;
  bool begins_apart_ = false;  // the step that begins
  bool is_given_ = false;  // the step that is collected

  std::vector<PacedRow> rows_;  // of the plan, or of the requests that the host drafts for
  std::vector<int> wanted_;
  std::span<const int> proposed_;              // [plan rows]: how many
  std::vector<int> none_;                      // [plan rows]: zeros
  std::vector<TokenId> drafts_;                // of one request
  std::vector<std::vector<TokenId>> guesses_;  // of the host, by request
  std::vector<DraftPosition> positions_;
  std::vector<DraftChoice> choices_;
};

}  // namespace quire
