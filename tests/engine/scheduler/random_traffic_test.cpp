#include <catch2/catch.hpp>
#include <deque>
#include <iostream>
#include <map>

#include "tests/engine/scheduler/flaky_peer.h"
#include "tests/engine/scheduler/invariants.h"
#include "tests/engine/scheduler/random_scenario.h"

namespace quire {
namespace {

using namespace quire::test;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kOperations = 60'000;
#else
constexpr std::int64_t kOperations = 1'000'000;
#endif

// Clients that come and go at random, and an engine without a model.
class Traffic {
 public:
  Traffic(const Scenario& scenario, std::uint64_t seed)
      : scenario_(scenario),
        random_(seed),
        kv_(scenario.kv),
        model_(scenario.kv, scenario.options.max_num_seqs,
               scenario.drafts, seed),
        peer_(scenario_.kv, model_, seed),
        scheduler_(scenario.options, kv_, scenario.transfers ? &peer_ : nullptr) {}

  // Returns how many operations it took: arrivals, aborts, and rows of steps.
  std::int64_t run(int num_steps) {
    for (int step = 0; step < num_steps; ++step) {
      arrive();
      leave();
      advance();
    }
    constexpr int kPatience = 20'000;
    for (int step = 0; scheduler_.has_work(); ++step) {
      if (step == kPatience) throw std::runtime_error("requests hang: " + state());
      advance();
    }
    for (const auto& [id, expectation] : open_) {
      throw std::runtime_error("request " + std::to_string(id.value) + " was never finished");
    }
    if (kv_.pool().num_free() != kv_.pool().num_usable()) {
      throw std::runtime_error("blocks are missing at the end");
    }
    return num_operations_;
  }

  const EngineStats stats() const { return scheduler_.stats(); }
  std::int64_t num_corrected() const { return num_corrected_; }  // rows of plans under way

 private:
  struct Expectation {
    std::vector<TokenId> answer, so_far;
  };

  RequestInit draw_request() {
    RequestInit init;
    init.id = RequestId(next_id_++);
    const int shared = pick(random_, 0, 40);
    const int family = pick(random_, 1, 3) * 1000;
    for (int i = 0; i < shared; ++i) init.prompt.push_back(family + i);
    const int own = pick(random_, shared == 0 ? 1 : 0, 12);
    for (int i = 0; i < own; ++i) init.prompt.push_back(pick(random_, 100, 103));
    init.sampling.max_tokens = pick(random_, 1, 24);
    init.sampling.skip_reading_prefix_cache = chance(random_, 0.1);
    init.eos_token_ids = {kEos};
    init.priority = pick(random_, 0, 2);
    init.arrival = std::chrono::steady_clock::time_point(std::chrono::nanoseconds(next_id_));
    if (chance(random_, 0.2)) init.cache_salt = "salt";
    if (chance(random_, 0.05)) init.sampling.constraint.emplace();
    return init;
  }

  void arrive() {
    double wanted = scenario_.arrivals_per_step;
    while (wanted > 0 && chance(random_, std::min(wanted, 1.0))) {
      wanted -= 1;
      RequestInit init = draw_request();
      const RequestId id = init.id;
      const bool fits = can_ever_run(init);
      const bool grammar = init.sampling.constraint.has_value();
      const auto added = scheduler_.add(std::move(init));
      ++num_operations_;
      if (fits != added.has_value()) throw std::runtime_error("admission is wrong");
      if (!added) continue;
      ids_.push_back(id);
      open_[id] = {answer_to(*scheduler_.find(id), scenario_.kv.max_model_len), {}};
      if (grammar) grammars_.push_back(id);
    }
  }

  bool can_ever_run(const RequestInit& init) const {
    const SchedulerOptions& options = scenario_.options;
    const int num_prompt = static_cast<int>(init.prompt.size());
    if (num_prompt >= options.max_model_len) return false;
    if (!options.chunked_prefill && num_prompt > options.max_num_batched_tokens) return false;
    // The last token of an answer is never stored; proposals are, even beyond it.
    const int stored =
        std::min(num_prompt + init.sampling.max_tokens - 1 + options.num_speculative_tokens,
                 options.max_model_len - 1);
    const int longest = std::min(stored + options.num_lookahead_tokens, options.max_model_len);
    return kv_.max_blocks(longest) <= kv_.pool().num_usable();
  }

  void leave() {
    if (open_.empty() || !chance(random_, 0.03)) return;
    auto victim = open_.begin();
    std::advance(victim, pick(random_, 0, static_cast<int>(open_.size()) - 1));
    if (!scheduler_.abort(victim->first)) throw std::runtime_error("abort of an open request");
    open_.erase(victim);
    ++num_operations_;
  }

  struct Step {
    const BatchPlan* plan;
    StepTokens tokens;
    std::vector<int> num_computed;  // of its rows, as the device knows
    std::vector<int> num_drafts;    // proposed behind them, where set_drafts() brings them
    bool is_given = false;          // that, before its end
  };

  void advance() {
    std::erase_if(grammars_, [&](RequestId id) {
      if (!chance(random_, 0.3)) return false;
      scheduler_.grammar_ready(id, nullptr);
      return true;
    });
    // What was drafted behind a step must be known to the next one.
    const bool ahead = scenario_.options.drafts_ahead;
    while (ahead && !in_flight_.empty() && !in_flight_.back().is_given) commit();
    if (scheduler_.can_schedule()) {
      const BatchPlan& plan = scheduler_.schedule();
      check_plan(plan, scenario_.options);
      check_chunks(plan, states_);
      Step& step = in_flight_.emplace_back(Step{&plan, model_.run(plan), {}, {}});
      const auto computed = model_.num_computed();
      step.num_computed.assign(computed.begin(), computed.end());
      num_operations_ += static_cast<std::int64_t>(plan.rows.size());
      if (ahead) propose(step);
      for (std::size_t r = 0; r < plan.rows.size(); ++r)
        num_corrected_ += plan.rows[r].num_computed > step.num_computed[r];
      check();
    }
    if (!scheduler_.can_schedule() || chance(random_, 0.3)) commit();
    std::erase_if(ids_, [&](RequestId id) { return scheduler_.find(id) == nullptr; });
  }

  // As Drafting does: some rows are left out, others get fewer than there could be.
  void propose(Step& step) {
    const BatchPlan& plan = *step.plan;
    for (const BatchRow& row : plan.rows) {
      const std::int64_t known = row.num_computed + row.num_tokens - row.num_drafts + 1;
      const std::int64_t most =
          std::min<std::int64_t>(row.request->max_total_tokens(),
                                 scenario_.options.max_model_len - row.num_drafts) -
          known - 1;
      const auto wanted = std::clamp<std::int64_t>(most, 0, scenario_.drafts.num_drafts);
      const bool is_whole = chance(random_, 0.6);
      step.num_drafts.push_back(!row.samples ? 0
                                : is_whole   ? static_cast<int>(wanted)
                                             : pick(random_, 0, static_cast<int>(wanted)));
    }
    model_.propose_again(plan, step.num_drafts);
    step.is_given = !plan.empty() && chance(random_, 0.85);
    if (!step.is_given) return;
    for (std::size_t r = 0; r < plan.rows.size(); ++r)
      give(*plan.rows[r].request, step.num_drafts[r]);
  }

  void give(const Request& request, int num_drafts) {
    const std::vector<TokenId> drafts(static_cast<std::size_t>(num_drafts), kUnknownDraft);
    scheduler_.set_drafts(request, drafts);
  }

  // What the plan took to have held was put right when the step before was committed.
  void check_corrected(const Step& step) const {
    for (std::size_t r = 0; r < step.plan->rows.size(); ++r) {
      const BatchRow& row = step.plan->rows[r];
      const Request& request = *row.request;
      if (request.state == RequestState::finished || request.num_discarded > 0) continue;
      if (row.num_computed != step.num_computed[r])
        throw std::runtime_error("a plan is not corrected: " + std::to_string(row.num_computed) +
                                 " for " + std::to_string(step.num_computed[r]));
    }
  }

  void commit() {
    if (in_flight_.empty()) return;
    const Step step = in_flight_.front();
    const auto [plan, tokens] = std::pair(step.plan, step.tokens);
    in_flight_.pop_front();
    check_corrected(step);
    const FlakyPeer::News news = peer_.step();
    if (!plan->empty()) scheduler_.settle_time(*plan, plan->num_tokens * (random_() % 8 == 0 ? 3 : 1));
    const StepResult& result = scheduler_.commit(*plan, tokens, news.view());
    if (!news.invalid.empty()) model_.spoils_reported();
    for (const RequestProgress& progress : result.requests) {
      take(result, progress);
      if (scenario_.options.drafts_ahead && !step.is_given && !progress.finish_reason)
        give(*progress.request, step.num_drafts.at(static_cast<std::size_t>(progress.row)));
    }
    check();
  }

  void take(const StepResult& result, const RequestProgress& progress) {
    const auto found = open_.find(progress.request->id());
    if (found == open_.end()) throw std::runtime_error("news of a request that is gone");
    auto& [answer, so_far] = found->second;
    const auto tokens = result.tokens_of(progress);
    so_far.insert(so_far.end(), tokens.begin(), tokens.end());
    if (!progress.finish_reason) return;
    if (so_far != answer) throw std::runtime_error("an answer differs from the undisturbed one");
    const bool by_token = answer.back() == kEos;
    const auto expected = by_token ? FinishReason::stop : FinishReason::length;
    if (*progress.finish_reason != expected) throw std::runtime_error("wrong finish reason");
    open_.erase(found);
  }

  // Of everyone who is still there.
  std::string state() const {
    std::string line;
    for (const RequestId id : ids_) {
      const Request& r = *scheduler_.find(id);
      line += std::to_string(id.value) + " " + std::string(name_of(r.state)) + " prompt " +
              std::to_string(r.num_prompt()) + " tokens " + std::to_string(r.num_tokens()) +
              " computed " + std::to_string(r.num_computed) + " pending " +
              std::to_string(r.num_placeholders) + "; ";
    }
    return line + std::to_string(kv_.pool().num_free()) + " blocks free";
  }

  void check() { check_invariants(scheduler_, kv_, ids_); }

  static int longest_step(const SchedulerOptions& options) {
    return options.long_prefill_threshold > 0
               ? std::min(options.long_prefill_threshold, options.max_num_batched_tokens)
               : options.max_num_batched_tokens;
  }

  Scenario scenario_;
  StateSteps states_ = state_steps(scenario_.kv, longest_step(scenario_.options));
  std::mt19937_64 random_;
  KvCacheManager kv_;
  SimulatedModel model_;
  FlakyPeer peer_;
  Scheduler scheduler_;
  std::deque<Step> in_flight_;
  std::uint64_t next_id_ = 1;
  std::vector<RequestId> ids_;  // that the scheduler knows
  std::map<RequestId, Expectation> open_;
  std::vector<RequestId> grammars_;
  std::int64_t num_operations_ = 0, num_corrected_ = 0;
};

std::string describe(const Layout& layout, const Scenario& s, std::uint64_t seed) {
  const SchedulerOptions& o = s.options;
  return layout.name + ", " + std::to_string(s.kv.num_blocks) + " blocks, context " +
         std::to_string(o.max_model_len) + ", budget " + std::to_string(o.max_num_batched_tokens) +
         ", rows " + std::to_string(o.max_num_seqs) + (o.async ? ", async " : ", sync ") +
         std::to_string(o.pipeline_depth) + ", drafts " + std::to_string(s.drafts.num_drafts) +
         "+" + std::to_string(o.num_lookahead_tokens) + (s.kv.use_eagle ? " eagle" : "") +
         (o.drafts_ahead ? " ahead" : "") +
         (s.transfers ? ", transfers" : "") + (o.chunked_prefill ? "" : ", whole prompts") +
         ", seed " + std::to_string(seed);
}

}  // namespace

TEST_CASE("Every accepted request finishes with its undisturbed answer, whatever the traffic",
          "[scheduler][property]") {
  std::int64_t operations = 0, preemptions = 0, hits = 0, accepted_drafts = 0, external = 0;
  for (std::uint64_t seed = 1; operations < kOperations; ++seed) {
    for (const Layout& layout : layouts()) {
      std::mt19937_64 random(seed * 7919 + operations);
      const int num_blocks = 2 + static_cast<int>((seed - 1) % 63);
      const Scenario scenario = draw_scenario(random, layout, num_blocks);
      INFO(describe(layout, scenario, seed));
      Traffic traffic(scenario, random());
      REQUIRE_NOTHROW(operations += traffic.run(150));
      const EngineStats stats = traffic.stats();
      preemptions += stats.preemptions;
      hits += stats.prefix_cache_hits;
      accepted_drafts += stats.accepted_draft_tokens;
      external += stats.external_cache_hits;
    }
  }
  std::cout << operations << " operations, " << preemptions << " preemptions, " << hits
            << " tokens hit, " << external << " loaded, " << accepted_drafts
            << " drafts accepted\n";
  CHECK(preemptions > operations / 1000);
  CHECK(hits > operations / 10);
  CHECK(accepted_drafts > operations / 1000);
  CHECK(external > operations / 1000);
}

TEST_CASE("so it does where the next step is planned before it is known how many drafts held",
          "[scheduler][property]") {
  std::int64_t operations = 0, preemptions = 0, hits = 0, accepted = 0, corrected = 0;
  for (std::uint64_t seed = 1; operations < kOperations / 2; ++seed) {
    for (const Layout& layout : layouts()) {
      const bool has_states = std::ranges::any_of(
          layout.groups, [](const GroupConfig& g) { return keeps_state(g.spec.kind); });
      if (has_states || !layout.drafts) continue;
      std::mt19937_64 random(seed * 7907 + operations);
      const int num_blocks = 2 + static_cast<int>((seed - 1) % 63);
      const Scenario scenario = draw_scenario_ahead(random, layout, num_blocks);
      INFO(describe(layout, scenario, seed));
      Traffic traffic(scenario, random());
      REQUIRE_NOTHROW(operations += traffic.run(150));
      const EngineStats stats = traffic.stats();
      preemptions += stats.preemptions;
      hits += stats.prefix_cache_hits;
      accepted += stats.accepted_draft_tokens;
      corrected += traffic.num_corrected();
    }
  }
  std::cout << operations << " operations, " << preemptions << " preemptions, " << hits
            << " tokens hit, " << accepted << " drafts accepted, " << corrected
            << " rows corrected\n";
  CHECK(preemptions > operations / 1000);
  CHECK(hits > operations / 10);
  CHECK(accepted > operations / 20);
  CHECK(corrected > operations / 20);
}

// With what drafts look ahead a chunk behind a hit needs a block more than there is.
TEST_CASE("the smallest cache of windows alone holds nobody up", "[scheduler][property]") {
  const auto window = std::ranges::find(layouts(), std::string("window"), &Layout::name);
  REQUIRE(window != layouts().end());
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 random(seed);
    Scenario s = draw_scenario(random, *window, 9);
    s.transfers = s.kv.use_eagle = s.options.async = s.options.reserve_full_prompt = false;
    s.options.pipeline_depth = 1;
    s.options.chunked_prefill = true;
    s.options.num_speculative_tokens = s.options.num_lookahead_tokens = 3;
    s.options.max_model_len = s.kv.max_model_len = 61;
    s.options.max_num_batched_tokens = s.kv.max_num_batched_tokens = 22;
    s.options.long_prefill_threshold = 0;
    INFO(describe(*window, s, seed));
    Traffic traffic(s, seed);
    REQUIRE_NOTHROW(traffic.run(150));
  }
}

TEST_CASE("nor does one in which drafts take what a chunk needs", "[scheduler][property]") {
  const auto layout =
      std::ranges::find(layouts(), std::string("small window blocks"), &Layout::name);
  REQUIRE(layout != layouts().end());
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    Scenario s = draw_scenario_ahead(random, *layout, 13);
    s.drafts.num_drafts = s.options.num_lookahead_tokens = 5;
    s.options.chunked_prefill = true;
    s.options.long_prefill_threshold = 0;
    s.options.max_model_len = s.kv.max_model_len = 45;
    s.options.max_num_batched_tokens = s.kv.max_num_batched_tokens = 8;
    INFO(describe(*layout, s, seed));
    Traffic traffic(s, seed);
    REQUIRE_NOTHROW(traffic.run(150));
  }
}

}  // namespace quire
