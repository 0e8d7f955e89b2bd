#pragma once
// How many tokens of prompts a step takes beside requests that decode, so that none of these waits
// longer for its next token than was promised: as many as steps of that size were measured to have
// time for, and never fewer than a few, so that prompts go on. It decides when tokens come, never
// which. Engine thread only; allocates nothing.

#include <array>
#include <cstdint>

#include "engine/costs/cost_curve.h"
#include "engine/request/engine_stats.h"
#include "engine/scheduler/batch_plan.h"

namespace quire {

struct ChunkPacerOptions {
  double target = 0;  // seconds from step to step; 0: no bound
  int most = 0;       // tokens of a step
  int least = 0;      // of prompts in a step, whatever it takes
};

class ChunkPacer {
 public:
  explicit ChunkPacer(const ChunkPacerOptions& options) : options_(options) {}

  // A step begins, in which requests that decode have so many tokens; 0: nobody waits for it.
  void begin(int num_decoding);
  // Of the wanted tokens of a prompt, how many this step has time for.
  int within(int num_computed, int wanted);
  // So many of them are in the step.
  void take(int num_computed, int num_tokens);
  // The step has no room for anybody's prompt any more.
  bool is_full() const;
  ChunkChoice choice() const { return choice_; }

  // A step took so long, from the end of the one before.
  void settle(const BatchPlan& plan, double seconds);
  // So many tokens of one prompt took so long, with nothing else.
  void learn(int num_tokens, double seconds);

  const PaceStats& stats() const { return stats_; }

 private:
  // Of one size, roughly: what its steps had on the average.
  struct Usual {
    double context = 0;  // tokens before a token of the step
    double seconds = 0;  // for a token of the step
    std::int64_t count = 0;
  };
  static constexpr int kPerDoubling = 4, kSizes = 18 * kPerDoubling;

  bool is_bound() const { return options_.target > 0 && num_decoding_ > 0; }
  double cost(int num_tokens, double attended) const;
  void follow(ChunkChoice choice, double share);
  void follow_speed(double share);
  void learn_context(int num_tokens, double attended, double seconds);

  const ChunkPacerOptions options_;
  CostCurve steps_;  // without what attention to earlier tokens takes, at speed 1
  std::array<Usual, kSizes> usual_ = {};
  double spread_ = 0, rise_ = 0;  // of contexts of steps alike, and of seconds with them
  double per_context_ = 0;        // seconds, of a token's attention to one before it, at speed 1
  double slack_ = 1;              // what steps take over what is expected of them, if rarely
  double worst_ = 1;              // of late, the largest share of the bound that a cut step took
  static constexpr int kRecent = 9;
  std::array<double, kRecent> shares_ = {};  // of what was expected, that the latest steps took
  std::int64_t num_shares_ = 0;
  double speed_ = 1;  // a third of these are below: more is slower

  int num_decoding_ = 0;   // tokens of this step
  int num_prompt_ = 0;     // of prompts, so far
  double attended_ = 0;    // by these, to earlier ones
  ChunkChoice choice_ = ChunkChoice::free;
  ChunkChoice offered_ = ChunkChoice::free;  // to the latest prompt, which may not get blocks
  PaceStats stats_;
};

}  // namespace quire
