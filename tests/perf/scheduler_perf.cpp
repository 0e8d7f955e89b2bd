// Scheduler and KV bookkeeping of decode steps, and how it grows with the queues. Goals: 60 ns per
// row and step at 256 rows, 100 ns at 4096, nothing allocated; operations on a waiting queue cost
// the same at 1 000 and at 100 000.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <new>

#include "engine/scheduler/scheduler.h"
#include "tests/perf/memory_probe.h"

namespace {
std::int64_t num_allocations = 0;
}

void* operator new(std::size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace quire::perf {
namespace {

constexpr int kBlockSize = 16;
constexpr int kPrompt = 500;

KvCacheConfig kv_config(int num_blocks) {
  KvCacheConfig config;
  config.num_blocks = num_blocks;
  config.groups.resize(1);
  config.groups[0].spec.block_size = kBlockSize;
  config.max_model_len = 4096;
  config.max_num_batched_tokens = 8192;
  config.scheduler_block_size = config.hash_block_size = kBlockSize;
  return config;
}

RequestInit request(std::uint64_t id, int num_prompt = kPrompt) {
  RequestInit init;
  init.id = RequestId(id);
  for (int i = 0; i < num_prompt; ++i) {
    init.prompt.push_back(static_cast<TokenId>((id * 7919 + static_cast<unsigned>(i)) % 32000 + 2));
  }
  init.sampling.max_tokens = 3000;
  init.eos_token_ids = {1};
  return init;
}

SchedulerOptions options(int num_rows, bool async) {
  SchedulerOptions options;
  options.max_num_seqs = num_rows;
  options.max_num_batched_tokens = 8192;
  options.max_model_len = 4096;
  options.async = async;
  options.pipeline_depth = async ? 2 : 1;
  return options;
}

class Engine {
 public:
  Engine(int num_rows, int num_blocks, bool async)
      : kv_(kv_config(num_blocks)), scheduler_(options(num_rows, async), kv_) {}

  Scheduler& scheduler() { return scheduler_; }

  // Plans until the pipeline is full, then takes back the oldest. Returns its rows.
  int step() {
    while (scheduler_.can_schedule()) in_flight_.push_back(&scheduler_.schedule());
    const BatchPlan& plan = *in_flight_.front();
    in_flight_.erase(in_flight_.begin());
    const int num_rows = static_cast<int>(plan.rows.size());
    sampled_.assign(plan.rows.size(), -1);
    for (int i = 0; i < num_rows; ++i) {
      if (plan.rows[i].samples) sampled_[i] = static_cast<TokenId>(i % 32000 + 2);
    }
    scheduler_.commit(plan, {.sampled = sampled_});
    return num_rows;
  }

 private:
  KvCacheManager kv_;
  Scheduler scheduler_;
  std::vector<const BatchPlan*> in_flight_;
  std::vector<TokenId> sampled_;
};

// A server that has run for a while: every block still holds somebody's prefix.
void age(Engine& engine, int num_blocks) {
  constexpr int kPromptBlocks = 128;
  for (int held = 0; held < num_blocks; held += kPromptBlocks) {
    const auto id = static_cast<std::uint64_t>(1'000'000 + held);
    RequestInit init = request(id, kPromptBlocks * kBlockSize);
    for (TokenId& token : init.prompt) token += static_cast<TokenId>(id);  // nobody's prefix
    init.sampling.max_tokens = 1;
    if (!engine.scheduler().add(std::move(init))) std::abort();
  }
  while (engine.scheduler().has_work()) engine.step();
}

// Nanoseconds per row and step, best of several stretches (others share this machine).
void measure_decode(int num_rows, bool async) {
  const int num_blocks = num_rows * 160 + 16;
  Engine engine(num_rows, num_blocks, async);
  age(engine, num_blocks);
  for (int i = 0; i < num_rows; ++i) {
    if (!engine.scheduler().add(request(static_cast<std::uint64_t>(i)))) std::abort();
  }
  while (engine.scheduler().waiting().size() > 0) engine.step();
  for (int i = 0; i < 40; ++i) engine.step();
  double best = 1e9, sum = 0;
  constexpr int kStretches = 20, kSteps = 48;  // three blocks filled by every row
  const std::int64_t allocations = num_allocations;
  for (int stretch = 0; stretch < kStretches; ++stretch) {
    const double start = thread_seconds();
    std::int64_t rows = 0;
    for (int i = 0; i < kSteps; ++i) rows += engine.step();
    const double ns = (thread_seconds() - start) * 1e9 / static_cast<double>(rows);
    best = std::min(best, ns);
    sum += ns;
  }
  std::printf(
      "decode %-5s %5d rows: %6.1f ns per row and step (mean %6.1f), %lld allocations in %d "
      "steps\n",
      async ? "async" : "sync", num_rows, best, sum / kStretches,
      static_cast<long long>(num_allocations - allocations), kStretches * kSteps);
}

struct QueueCosts {
  double add = 0, step = 0, abort = 0;  // ns
};

// All rows are taken, so everybody new waits.
QueueCosts measure_queue(int num_waiting, SchedulingPolicy policy) {
  constexpr int kRows = 8;
  KvCacheManager kv(kv_config(4096));
  SchedulerOptions own = options(kRows, false);
  own.policy = policy;
  Scheduler scheduler(own, kv);
  std::uint64_t id = 0;
  for (; id < static_cast<std::uint64_t>(kRows + num_waiting); ++id) {
    if (!scheduler.add(request(id, 8))) std::abort();
  }
  std::vector<TokenId> sampled(kRows, 2);
  const auto step = [&] { scheduler.commit(scheduler.schedule(), {.sampled = sampled}); };
  step();
  constexpr int kTimes = 2000;
  std::vector<RequestInit> extra;
  for (int i = 0; i < kTimes; ++i) extra.push_back(request(id++, 8));
  QueueCosts costs;
  double start = thread_seconds();
  for (RequestInit& init : extra) {
    if (!scheduler.add(std::move(init))) std::abort();
  }
  costs.add = (thread_seconds() - start) * 1e9 / kTimes;
  start = thread_seconds();
  for (int i = 0; i < kTimes; ++i) step();
  costs.step = (thread_seconds() - start) * 1e9 / kTimes;
  start = thread_seconds();
  for (int i = 0; i < kTimes; ++i)
    scheduler.abort(RequestId(id - 1 - static_cast<std::uint64_t>(i)));
  costs.abort = (thread_seconds() - start) * 1e9 / kTimes;
  return costs;
}

void measure_queues(SchedulingPolicy policy) {
  QueueCosts first;
  for (const int num_waiting : {1'000, 10'000, 100'000}) {
    QueueCosts best{1e9, 1e9, 1e9};
    for (int i = 0; i < 5; ++i) {
      const QueueCosts costs = measure_queue(num_waiting, policy);
      best = {std::min(best.add, costs.add), std::min(best.step, costs.step),
              std::min(best.abort, costs.abort)};
    }
    if (num_waiting == 1'000) first = best;
    std::printf(
        "%-8s %6d waiting: add %5.0f ns (x%.2f), step of 8 rows %5.0f ns (x%.2f), abort %5.0f ns "
        "(x%.2f)\n",
        policy == SchedulingPolicy::fcfs ? "fcfs" : "priority", num_waiting, best.add,
        best.add / first.add, best.step, best.step / first.step, best.abort,
        best.abort / first.abort);
  }
}

void measure_pool(int num_blocks) {
  BlockPool pool({num_blocks, true, false, kBlockSize, {kBlockSize}});
  std::vector<BlockId> ids(64);
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    const double start = thread_seconds();
    constexpr int kTimes = 1000;
    for (int i = 0; i < kTimes; ++i) {
      if (!pool.allocate(ids)) std::abort();
      pool.free_reversed(ids);
    }
    best =
        std::min(best, (thread_seconds() - start) * 1e9 / kTimes / static_cast<double>(ids.size()));
  }
  std::printf("pool of %7d blocks: allocate and free %5.1f ns per block\n", num_blocks, best);
}

}  // namespace
}  // namespace quire::perf

int main() {
  using namespace quire;
  using namespace quire::perf;
  std::printf("probe: %.0f ns per missing load, memcpy %.1f GB/s\n", missing_load_ns(),
              memcpy_gb_per_s());
  for (const int num_rows : {64, 256, 1024, 4096}) {
    measure_decode(num_rows, false);
    measure_decode(num_rows, true);
  }
  measure_queues(SchedulingPolicy::fcfs);
  measure_queues(SchedulingPolicy::priority);
  for (const int num_blocks : {1'000, 100'000, 1'000'000}) measure_pool(num_blocks);
  std::printf("probe: %.0f ns per missing load, memcpy %.1f GB/s\n", missing_load_ns(),
              memcpy_gb_per_s());
}
