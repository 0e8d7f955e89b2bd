// The pacer against machines whose costs and acceptance are known: it finds the best number of
// drafts, none where none pay, and notices a change.

#include "engine/speculative/draft_pacer.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <random>

namespace quire {
namespace {

// Times of a machine, in seconds.
struct Machine {
  double fixed = 1, token = 0;      // of a step
  double pass = 0, pass_token = 0;  // of a draft model's
  double intake = 0;                // of a prompt, by a draft model
  double step(int tokens) const { return fixed + token * tokens; }
  double drafting(int rows, int drafts) const { return drafts * (pass + pass_token * rows); }
};

struct Run {
  double tokens = 0, seconds = 0;
  std::vector<int> choices;  // by number of drafts
  double pace() const { return tokens / seconds; }
};

class Simulation {
 public:
  Simulation(const DraftPacerOptions& options, Machine machine)
      : machine(machine), options_(options), pacer_(options), most_(options.max_drafts) {
    const int largest = options.max_num_seqs * (1 + most_);
    for (int tokens = 1; tokens <= 2 * largest; tokens *= 2) {  // as an engine starts
      for (int i = 0; i < DraftCosts::kKnown; ++i) {
        pacer_.costs().add_step(tokens, machine.step(tokens));
        if (options.has_model)
          pacer_.costs().add_drafting(tokens, most_, machine.drafting(tokens, most_));
      }
    }
  }

  // So many requests decode for this many steps; acceptance by request.
  Run run(int rows, int steps, const std::function<double(int)>& acceptance, bool start = true) {
    Run run;
    run.choices.resize(static_cast<std::size_t>(options_.max_drafts) + 1);
    num_listening = 0;
    if (start) {
      for (int i = 0; i < rows; ++i) pacer_.start(i, rows);
      drafts_.assign(static_cast<std::size_t>(rows), 0);
    }
    for (int i = 0; i < steps; ++i) step(rows, acceptance, run);
    return run;
  }

  // One request after the other, each of so many tokens.
  Run answer(int requests, int tokens, double acceptance) {
    Run run;
    run.choices.resize(static_cast<std::size_t>(options_.max_drafts) + 1);
    for (int i = 0; i < requests; ++i) {
      const double before = run.tokens;
      pacer_.start(0, 1, {.num_intake = kPrompt, .most_output = tokens});
      drafts_.assign(1, 0);
      if (machine.intake > 0) take_in(tokens, run);
      while (run.tokens < before + tokens) {
        most_ =
            std::clamp(static_cast<int>(before - run.tokens) + tokens - 2, 0, options_.max_drafts);
        step(
            1, [&](int) { return acceptance; }, run);
      }
      pacer_.finish(tokens);
    }
    return run;
  }

  const DraftForecast& forecast() const { return pacer_.forecast(); }

  Machine machine;
  int num_listening = 0;  // steps behind which there may be drafts, since the latest run() began

 private:
  static constexpr int kPrompt = 100;

  // The prompt's step, whose own time both sides have, gives the first token.
  void take_in(int tokens, Run& run) {
    const PacedRow row{.slot = 0, .most = std::clamp(tokens - 2, 0, options_.max_drafts)};
    int wanted = 0;
    num_listening += pacer_.may_draft();
    pacer_.choose({&row, 1}, 1, {&wanted, 1});
    if (wanted < 0) return;
    run.seconds += machine.intake * noise();
    if (wanted > 0) run.seconds += machine.drafting(1, wanted);
    pacer_.costs().add_intake(kPrompt, machine.intake);
    drafts_ = {wanted};
  }

  void step(int rows, const std::function<double(int)>& acceptance, Run& run) {
    num_listening += pacer_.may_draft();
    int tokens = 0;
    for (const int drafts : drafts_) tokens += 1 + drafts;
    const double verify = machine.step(tokens) * noise();
    pacer_.compare(tokens, drafting_ + verify);
    pacer_.costs().add_step(tokens, verify);
    run.seconds += verify;
    std::vector<PacedRow> paced;
    for (int i = 0; i < rows; ++i) {
      const int drafts = drafts_[static_cast<std::size_t>(i)];
      int held = 0;
      while (held < drafts && uniform() < acceptance(i)) ++held;
      if (drafts > 0) pacer_.settle(i, drafts, held);
      run.tokens += 1 + held;
      paced.push_back({.slot = i, .most = most_});
    }
    std::vector<int> wanted(static_cast<std::size_t>(rows));
    pacer_.choose(paced, rows, wanted);
    drafting_ = 0;
    int passes = 0, drafted = 0;
    for (int& one : wanted) {
      if (options_.has_model && one >= 0) ++drafted;
      one = std::max(one, 0);
      passes = std::max(passes, one);
      ++run.choices[static_cast<std::size_t>(one)];
    }
    if (drafted > 0) {
      const double took = machine.drafting(drafted, std::max(passes, 1)) * noise();
      if (passes > 0) pacer_.costs().add_drafting(drafted, passes, took);
      run.seconds += took;
      drafting_ = took;
    }
    drafts_ = wanted;
  }
  double uniform() { return std::uniform_real_distribution<double>()(random_); }
  double noise() { return 0.9 + 0.2 * uniform() + (uniform() < 0.02 ? 2 : 0); }

  const DraftPacerOptions options_;
  DraftPacer pacer_;
  int most_;  // drafts that a request can have
  std::vector<int> drafts_;
  double drafting_ = 0;  // seconds, before the step
  std::mt19937 random_{3};
};

DraftPacerOptions with_model(int drafts) {
  return {.max_num_seqs = 64, .max_drafts = drafts, .has_model = true};
}

// Tokens a second with always this many drafts.
double pace_of(const Machine& machine, int rows, int drafts, double acceptance) {
  double tokens = 1, holds = 1;
  for (int i = 0; i < drafts; ++i) tokens += holds *= acceptance;
  return rows * tokens / (machine.step(rows * (1 + drafts)) + machine.drafting(rows, drafts));
}

double best_pace(const Machine& machine, int rows, int most, double acceptance) {
  double best = 0;
  for (int drafts = 0; drafts <= most; ++drafts)
    best = std::max(best, pace_of(machine, rows, drafts, acceptance));
  return best;
}

constexpr double kNoise = 1.04;  // mean of the simulation's

TEST_CASE("the pace comes near that of the best number of drafts", "[speculative]") {
  const Machine machines[] = {
      {.fixed = 1, .token = 0.01, .pass = 0.05},  // waits for memory
      {.fixed = 1, .token = 0.2, .pass = 0.2},    // computes
      {.fixed = 0.1, .token = 1, .pass = 0.3},    // nothing to win
      {.fixed = 1, .token = 0.02, .pass = 0.02, .pass_token = 0.02},
  };
  for (const Machine& machine : machines) {
    for (const int rows : {1, 8, 48}) {
      for (const double acceptance : {0.02, 0.4, 0.7, 0.95}) {
        INFO(machine.token << " a token, " << rows << " rows, " << acceptance << " held");
        Simulation simulation(with_model(5), machine);
        simulation.run(rows, 300, [&](int) { return acceptance; });
        const Run run = simulation.run(
            rows, 3000, [&](int) { return acceptance; }, false);
        std::string choices;
        for (const int one : run.choices) choices += std::to_string(one) + " ";
        INFO(choices);
        CHECK(run.pace() * kNoise > 0.85 * best_pace(machine, rows, 5, acceptance));
        CHECK(run.pace() * kNoise > 0.97 * pace_of(machine, rows, 0, acceptance));
      }
    }
  }
}

// Of requests whose prompts a model leaves out, it can say nothing later: all is decided anew.
TEST_CASE("what it expects of drafts is what they bring", "[speculative]") {
  const bool has_model = GENERATE(true, false);
  for (const double acceptance : {0.2, 0.6, 0.9}) {
    const Machine machine{
        .fixed = 1, .token = 0.1, .pass = has_model ? 0.1 : 0, .pass_token = has_model ? 0.01 : 0};
    Simulation simulation(
        {.max_num_seqs = 4, .max_drafts = 4, .has_model = has_model}, machine);
    simulation.run(4, 500, [&](int) { return acceptance; });
    const DraftForecast before = simulation.forecast();
    const Run run = simulation.run(4, 1500, [&](int) { return acceptance; }, false);
    const double plain = run.tokens * machine.step(4) / 4 * kNoise;
    const double saved = (simulation.forecast().without - before.without) -
                         (simulation.forecast().with - before.with);
    CAPTURE(has_model, acceptance);
    CHECK(plain / (plain - saved) == Approx(plain / run.seconds).epsilon(0.1));
  }
}

TEST_CASE("short answers are no slower than without drafts", "[speculative]") {
  for (const double token : {0.05, 0.3, 1.0}) {
    for (const double pass : {0.0, 0.15, 0.4}) {
      for (const double acceptance : {0.1, 0.7, 0.93}) {
        INFO(token << " a token, " << pass << " a pass, " << acceptance << " held");
        const Machine machine{.fixed = 1, .token = token, .pass = pass};
        DraftPacerOptions options = with_model(3);
        options.has_model = pass > 0;
        Simulation simulation(options, machine);
        const Run run = simulation.answer(500, 16, acceptance);
        CHECK(run.pace() * kNoise > 0.98 * pace_of(machine, 1, 0, acceptance));
      }
    }
  }
}

// Drafts save some six of twelve units of an answer.
TEST_CASE("a prompt is taken in where the answer's drafts repay that", "[speculative]") {
  for (const double intake : {0.5, 2.0, 20.0}) {
    INFO("intake " << intake);
    Simulation simulation(with_model(3),
                          {.fixed = 1, .token = 0.05, .pass = 0.1, .intake = intake});
    simulation.answer(40, 12, 0.8);
    const Run run = simulation.answer(400, 12, 0.8);
    const double plain = 1 / (1.05 * kNoise);
    CHECK(run.pace() > (intake < 10 ? 1.1 : 0.97) * plain);
  }
}

TEST_CASE("a request that ends is not drafted for", "[speculative]") {
  const bool adaptive = GENERATE(true, false);
  DraftPacer pacer({.max_num_seqs = 2, .max_drafts = 3, .adaptive = adaptive, .has_model = true});
  pacer.start(0, 2);
  pacer.start(1, 2);
  const PacedRow rows[] = {{.slot = 0, .most = 3, .is_ending = true}, {.slot = 1, .most = 3}};
  std::array<int, 2> wanted = {};
  pacer.choose(rows, 2, wanted);
  CHECK(wanted[0] == (adaptive ? DraftPacer::kLeaveOut : 0));
  CHECK(wanted[1] == 3);
}

TEST_CASE("each request gets what its own drafts are worth", "[speculative]") {
  Simulation simulation(with_model(4), {.fixed = 1, .token = 0.05, .pass = 0.1});
  const auto acceptance = [](int row) { return row % 2 == 0 ? 0.95 : 0.02; };
  simulation.run(8, 200, acceptance);
  const Run run = simulation.run(8, 1000, acceptance, false);
  CHECK(run.choices[4] > 3000);
  CHECK(run.choices[0] > 3500);
}

TEST_CASE("drafts that begin to hold are noticed, and those that no longer do", "[speculative]") {
  for (const bool model : {false, true}) {
    DraftPacerOptions options = with_model(4);
    options.has_model = model;
    Simulation simulation(options, {.fixed = 1, .token = 0.3, .pass = model ? 0.1 : 0});
    simulation.run(1, 400, [](int) { return 0.9; });
    const Run bad = simulation.run(
        1, 1000, [](int) { return 0.0; }, false);
    CHECK(bad.choices[0] > 880);
    simulation.run(
        1, 6000, [](int) { return 0.95; }, false);
    const Run good = simulation.run(
        1, 1000, [](int) { return 0.95; }, false);
    CHECK(good.choices[0] < 100);
  }
}

TEST_CASE("new requests are drafted for again when they fit", "[speculative]") {
  Simulation simulation(with_model(4), {.fixed = 1, .token = 0.1, .pass = 0.1});
  for (int i = 0; i < 60; ++i) simulation.run(1, 30, [](int) { return 0.0; });
  const Run off = simulation.run(1, 100, [](int) { return 0.0; });
  CHECK(off.choices[0] > 80);
  Run last;
  for (int i = 0; i < 500; ++i) last = simulation.run(1, 30, [](int) { return 0.95; });
  CHECK(last.choices[0] < 10);
}

TEST_CASE("a fixed number is kept to, and a full batch has none", "[speculative]") {
  DraftPacerOptions options = with_model(3);
  options.adaptive = false;
  options.disable_by_batch_size = 4;
  Simulation simulation(options, {.fixed = 0.1, .token = 1, .pass = 1});
  CHECK(simulation.run(4, 100, [](int) { return 0.0; }).choices[3] == 400);
  CHECK(simulation.run(5, 100, [](int) { return 1.0; }).choices[0] == 500);
  CHECK(simulation.run(4, 100, [](int) { return 0.0; }).choices[3] == 400);
}

TEST_CASE("where nothing pays hardly anything is kept for drafts", "[speculative]") {
  Simulation simulation(with_model(3), {.fixed = 0.1, .token = 1, .pass = 1});
  simulation.run(8, 100, [](int) { return 0.1; });
  const Run run = simulation.run(
      8, 800, [](int) { return 0.1; }, false);
  CHECK(run.choices[0] == 6400);
  CHECK(simulation.num_listening <= 100);
}

TEST_CASE("a request that is left out from its start keeps nothing for drafts", "[speculative]") {
  Simulation simulation(with_model(3), {.fixed = 1, .token = 0.9, .pass = 0.5, .intake = 1});
  simulation.answer(100, 4, 0.1);
  simulation.num_listening = 0;
  simulation.answer(300, 4, 0.1);
  CHECK(simulation.num_listening < 250);  // of 300 prompts and the steps behind them
}

TEST_CASE("steps with drafts that are slower than they seem are not made", "[speculative]") {
  DraftCosts costs(2);
  const auto known = [&](int tokens, double seconds) {
    for (int i = 0; i < DraftCosts::kKnown; ++i) costs.add_step(tokens, seconds);
  };
  known(1, 1);
  known(2, 1.2);
  CHECK(costs.drafted(2, 0, 0) == Approx(1.2));
  CHECK(costs.step(8) == Approx(4.8));  // larger than any that ran
  for (int i = 0; i < 200; ++i) {
    costs.compare(false, 1, 1.1);
    costs.compare(true, 1.2, 1.2 * 1.4);
  }
  CHECK(costs.plain(1) == Approx(1.1).epsilon(0.03));
  CHECK(costs.drafted(2, 0, 0) == Approx(1.2 * 1.4).epsilon(0.1));
  costs.compare(true, 1.2, 1000);  // something else kept the machine busy
  CHECK(costs.drafted(2, 0, 0) < 1.2 * 1.45);
}

TEST_CASE("a size that never ran is guessed from its neighbours", "[speculative]") {
  CostCurve curve;
  CHECK(curve.at(3) == 0);
  curve.add(4, 2);
  CHECK(curve.at(2) == 2);
  CHECK(curve.at(100) == 2);
  curve.add(8, 4);
  CHECK(curve.at(6) == Approx(3));
  for (int i = 0; i < 3; ++i) curve.add(4, 1);
  CHECK(curve.at(4) == 1);
  for (int i = 0; i < 2; ++i) curve.add(4, 1000);  // something else kept the machine busy
  CHECK(curve.at(4) == 1);

  DraftCosts costs(4);
  costs.add_drafting(1, 2, 2);
  CHECK(costs.drafting(1, 1) == Approx(1));
  CHECK(costs.drafting(1, 4) == Approx(4));
  costs.add_drafting(1, 4, 3);
  CHECK(costs.drafting(1, 3) == Approx(2.5));
}

}  // namespace
}  // namespace quire
