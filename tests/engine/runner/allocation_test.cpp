// A program of its own: it counts every allocation.

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <deque>
#include <new>

#include "cpu/cpu_backend.h"
#include "engine/runner/model_runner.h"
#include "tests/engine/runner/recording_model.h"

namespace {
std::atomic<long> allocations{0};
}

void* operator new(std::size_t size) {
  ++allocations;
  if (void* data = std::malloc(size)) return data;
  throw std::bad_alloc();
}
// A sanitizer's own one would not go with our delete.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size);
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }

namespace quire::test {
namespace {

TEST_CASE("a steady decode step allocates nothing", "[engine][runner]") {
  constexpr int kRows = 64;
  const KvPlan plan = attention_plan(1000, 256);
  auto device = make_cpu_device();
  auto ops = make_cpu_ops({.threads = 1});
  KvMemory memory(*device, plan);
  RecordingModel model;
  model.recording = false;
  ModelRunner runner(
      *device, *ops, model, memory, plan,
      {.limits = {.max_num_seqs = kRows, .max_num_batched_tokens = 512, .max_model_len = 256}});
  std::deque<Request> requests;
  BatchPlan step;
  for (int row = 0; row < kRows; ++row) {
    RequestInit init;
    init.id = RequestId{static_cast<std::uint64_t>(row) + 1};
    init.prompt = {row};
    init.sampling.temperature = 0;  // the CPU's filtered draws sort in memory of their own
    Request& request = requests.emplace_back(std::move(init));
    step.rows.push_back(
        {.request = &request, .slot = row, .num_tokens = 1, .is_new = true, .samples = true});
    step.block_updates.push_back({.row = row, .group = 0, .first = row, .count = 1});
    step.block_ids.push_back(row + 1);
  }
  step.num_tokens = kRows;
  long before = 0;
  for (int i = 0; i < 8; ++i) {
    if (i == 3) before = allocations;  // vectors have found their sizes by then
    runner.launch(step);
    const StepTokens tokens = runner.collect();
    if (i == 0) {
      step.block_updates.clear();
      step.block_ids.clear();
    }
    for (int row = 0; row < kRows; ++row) {
      const bool counts = i >= 3;
      const long own = allocations;
      requests[row].append(tokens.sampled[row]);  // the request's own vector may grow
      if (counts) before += allocations - own;
      step.rows[row].is_new = false;
      step.rows[row].num_computed = i + 1;
    }
  }
  CHECK(allocations == before);
}

}  // namespace
}  // namespace quire::test
