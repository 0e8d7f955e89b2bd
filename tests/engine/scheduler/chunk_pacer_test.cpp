// The pacer against machines whose times are known: gaps keep the bound, prompts go on.

#include "engine/scheduler/chunk_pacer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <vector>

#include "engine/scheduler/scheduler.h"

namespace quire {
namespace {

constexpr double kMillisecond = 1e-3;

// Seconds of a step: it reads the weights once, and multiplies by each token's.
struct Machine {
  double fixed = 20 * kMillisecond;
  double token = 0.4 * kMillisecond;
  double attended = 0.01e-6;  // a token looks at one before it
  std::function<double()> disturbance = [] { return 1.; };

  double take(const BatchPlan& plan) const {
    double seconds = fixed + token * plan.num_tokens;
    for (const BatchRow& row : plan.rows)
      seconds += attended * row.num_tokens * (row.num_computed + row.num_tokens / 2.);
    return seconds * disturbance();
  }
};

RequestInit request(std::uint64_t id, int num_prompt, int max_tokens) {
  RequestInit init;
  init.id = RequestId(id);
  for (int i = 0; i < num_prompt; ++i)
    init.prompt.push_back(static_cast<TokenId>((id * 7919 + static_cast<std::uint64_t>(i)) % 50021));
  init.sampling.max_tokens = max_tokens;
  return init;
}

struct Run {
  std::vector<double> gaps;  // of steps in which somebody decoded
  std::vector<int> chunks;   // of prompts in these, where there were any
  int steps = 0;
  EngineStats stats;

  double share_above(double seconds) const {
    return static_cast<double>(std::ranges::count_if(gaps, [&](double g) { return g > seconds; })) /
           static_cast<double>(gaps.size());
  }
};

// Requests that decode all the time, and prompts one behind the other.
class Bench {
 public:
  explicit Bench(double target, int batched_tokens = 2048)
      : kv_(kv_config()), scheduler_(options(target, batched_tokens), kv_) {}

  Scheduler& scheduler() { return scheduler_; }

  // As an engine does at start-up.
  void time_prompts(const Machine& machine, double most) {
    for (int tokens = 16; tokens <= 2048; tokens *= 2) {
      BatchPlan plan;
      plan.num_tokens = tokens;
      plan.rows = {{.num_tokens = tokens, .is_new = true, .samples = true}};
      scheduler_.learn_time(tokens, machine.take(plan));
      if (machine.take(plan) > most) break;
    }
  }

  void decode(int num_requests) {
    for (int i = 0; i < num_requests; ++i)
      REQUIRE(scheduler_.add(request(next_id_++, 4, 100'000)).has_value());
    step(Machine());
  }

  Run prefill(const Machine& machine, const std::vector<int>& prompts) {
    Run run;
    for (const int length : prompts) {
      const RequestId id(next_id_);
      REQUIRE(scheduler_.add(request(next_id_++, length, 1)).has_value());
      while (scheduler_.find(id) != nullptr) {
        REQUIRE(++run.steps < 100'000);
        const auto [seconds, num_prompt, decodes] = step(machine);
        if (!decodes) continue;
        run.gaps.push_back(seconds);
        if (num_prompt > 0) run.chunks.push_back(num_prompt);
      }
    }
    run.stats = scheduler_.stats();
    return run;
  }

 private:
  struct Step {
    double seconds = 0;
    int num_prompt = 0;
    bool decodes = false;
  };

  static KvCacheConfig kv_config() {
    KvCacheConfig config;
    config.num_blocks = 1 << 15;
    config.groups.resize(1);
    config.groups[0].spec.block_size = 16;
    config.max_model_len = 1 << 17;
    config.max_num_batched_tokens = 2048;
    config.scheduler_block_size = config.hash_block_size = 16;
    config.enable_caching = false;
    return config;
  }
  static SchedulerOptions options(double target, int batched_tokens) {
    SchedulerOptions options;
    options.max_num_seqs = 16;
    options.max_num_batched_tokens = batched_tokens;
    options.max_model_len = 1 << 17;
    options.target_step_seconds = target;
    return options;
  }

  Step step(const Machine& machine) {
    const BatchPlan& plan = scheduler_.schedule();
    Step done{.seconds = machine.take(plan)};
    std::vector<TokenId> sampled;
    for (const BatchRow& row : plan.rows) {
      sampled.push_back(row.samples ? 5 : -1);
      const bool is_prompt = row.num_tokens > 1;
      done.num_prompt += is_prompt ? row.num_tokens : 0;
      done.decodes |= !is_prompt;
    }
    scheduler_.settle_time(plan, done.seconds);
    scheduler_.commit(plan, {.sampled = sampled});
    return done;
  }

  KvCacheManager kv_;
  Scheduler scheduler_;
  std::uint64_t next_id_ = 1;
};

constexpr double kTarget = 100 * kMillisecond;

}  // namespace

TEST_CASE("Without a bound, and where nobody decodes, a step takes all that it has room for",
          "[pacer]") {
  Bench unbound(0), alone(kTarget);
  unbound.decode(3);
  const Run run = unbound.prefill(Machine(), {6000});
  CHECK(run.steps == 3);
  CHECK(run.stats.pace.cut_steps == 0);
  CHECK(alone.prefill(Machine(), {6000}).steps == 3);
}

TEST_CASE("Gaps keep the bound from the first prompt on, and use it", "[pacer]") {
  Bench bench(kTarget);
  bench.time_prompts(Machine(), kTarget);
  bench.decode(4);
  const Run run = bench.prefill(Machine(), {3000, 500, 3000, 1000, 3000});
  // What attention to earlier tokens takes is learned on the way.
  CHECK(run.share_above(kTarget) < 0.05);
  CHECK(run.share_above(1.1 * kTarget) == 0);
  CHECK(run.stats.pace.cut_steps > 30);
  CHECK(run.stats.pace.whole_steps > 0);  // what was left of a prompt
  // 196 tokens take 100 ms where no attention counts.
  CHECK(*std::ranges::max_element(run.chunks) > 150);
  CHECK(run.steps < 10'500 / 130);
}

TEST_CASE("A long context is told from a large step", "[pacer]") {
  Bench bench(kTarget);
  Machine machine;
  machine.attended = 0.05e-6;  // behind 20,000 tokens one takes 1.4 ms instead of 0.4
  bench.time_prompts(machine, kTarget);
  bench.decode(2);
  bench.prefill(machine, {4000, 20'000, 4000});
  const Run run = bench.prefill(machine, {20'000, 100, 20'000});
  CHECK(run.share_above(1.05 * kTarget) < 0.02);
  CHECK(run.chunks.front() > 120);
  CHECK(run.stats.pace.least_steps == 0);
}

TEST_CASE("A bound that cannot be kept does not stop prompts", "[pacer]") {
  Bench bench(5 * kMillisecond);  // less than a step takes
  bench.time_prompts(Machine(), 5 * kMillisecond);
  bench.decode(2);
  const Run run = bench.prefill(Machine(), {3200});
  CHECK(run.steps == 200);
  CHECK(run.stats.pace.least_steps >= 199);
  CHECK(run.stats.pace.chunk_tokens == 16);
  CHECK(run.stats.pace.late_steps == 200);
}

TEST_CASE("max_num_batched_tokens stays the most, and leaves room for who decodes", "[pacer]") {
  Bench bench(10'000 * kMillisecond, 64);
  bench.decode(4);
  const Run run = bench.prefill(Machine(), {600});
  CHECK(*std::ranges::max_element(run.chunks) == 60);
  CHECK(run.steps == 10);
  CHECK(run.stats.pace.whole_steps == 10);  // it is not the bound that cuts them
}

TEST_CASE("Where steps are disturbed, few are late", "[pacer]") {
  Bench bench(kTarget);
  std::mt19937 random(7);
  Machine machine;
  machine.disturbance = [&] { return random() % 5 == 0 ? 1.4 : 1.; };
  bench.time_prompts(Machine(), kTarget);
  bench.decode(4);
  bench.prefill(machine, std::vector<int>(20, 2000));
  const Run run = bench.prefill(machine, std::vector<int>(60, 2000));
  CHECK(run.share_above(kTarget) < 0.03);
}

TEST_CASE("It follows a machine that becomes slower, and faster again", "[pacer]") {
  Bench bench(kTarget);
  const Machine fast;
  Machine slow;
  slow.token *= 2;
  slow.fixed *= 2;
  bench.time_prompts(fast, kTarget);
  bench.decode(2);
  bench.prefill(fast, std::vector<int>(10, 2000));
  bench.prefill(slow, std::vector<int>(10, 2000));
  CHECK(bench.prefill(slow, std::vector<int>(20, 2000)).share_above(kTarget) < 0.03);
  bench.prefill(fast, std::vector<int>(200, 2000));
  const Run run = bench.prefill(fast, std::vector<int>(20, 2000));
  CHECK(run.steps < 40'000 / 130);
}

TEST_CASE("What got no blocks was not cut", "[pacer]") {
  ChunkPacer pacer({.target = kTarget, .most = 2048, .least = 16});
  for (int tokens = 16; tokens <= 256; tokens *= 2) pacer.learn(tokens, tokens * kMillisecond);
  pacer.begin(2);
  CHECK(pacer.within(0, 1000) < 128);
  CHECK(pacer.choice() == ChunkChoice::free);
  pacer.take(0, pacer.within(0, 1000));
  CHECK(pacer.choice() == ChunkChoice::cut);
}

TEST_CASE("A table made on a busy machine does not hold prompts back for long", "[pacer]") {
  Bench bench(kTarget);
  Machine busy;
  busy.disturbance = [] { return 3.; };
  bench.time_prompts(busy, kTarget);
  bench.decode(2);
  bench.prefill(Machine(), std::vector<int>(5, 2000));
  const Run run = bench.prefill(Machine(), std::vector<int>(20, 2000));
  CHECK(run.steps < 40'000 / 130);
  CHECK(run.share_above(kTarget) < 0.03);
}

TEST_CASE("After a burst of other work prompts go on as before", "[pacer]") {
  Bench bench(kTarget);
  bench.time_prompts(Machine(), kTarget);
  bench.decode(2);
  bench.prefill(Machine(), std::vector<int>(10, 2000));
  Machine slow;
  slow.disturbance = [] { return 3.; };  // so that there is time for 31 tokens
  bench.prefill(slow, std::vector<int>(6, 2000));
  bench.prefill(Machine(), std::vector<int>(10, 2000));
  CHECK(bench.prefill(Machine(), std::vector<int>(20, 2000)).steps < 40'000 / 120);
}

TEST_CASE("Prompts that were expected to fit as a whole teach it, too", "[pacer]") {
  Bench bench(kTarget);
  bench.time_prompts(Machine(), kTarget);
  bench.decode(2);
  Machine slow;
  slow.disturbance = [] { return 2.; };
  std::vector<int> prompts;
  for (int i = 0; i < 60; ++i) prompts.push_back(20 + i * 37 % 150);
  CHECK(bench.prefill(slow, prompts).share_above(kTarget) < 0.15);
  CHECK(bench.prefill(slow, prompts).share_above(kTarget) < 0.03);
}

TEST_CASE("A bound needs prompts in chunks", "[pacer]") {
  KvCacheConfig config;
  config.num_blocks = 8;
  config.groups.resize(1);
  config.groups[0].spec.block_size = 4;
  config.max_model_len = 16;
  config.max_num_batched_tokens = 16;
  config.scheduler_block_size = config.hash_block_size = 4;
  KvCacheManager kv(config);
  SchedulerOptions options;
  options.max_model_len = 16;
  options.target_step_seconds = 1;
  options.chunked_prefill = false;
  CHECK_THROWS_AS(Scheduler(options, kv), Failure);
}

}  // namespace quire
