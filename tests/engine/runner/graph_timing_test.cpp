// Which graphs of steps with prompts a runner keeps, on a device whose graphs take as long as the
// test says.

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "cpu/cpu_backend.h"
#include "engine/runner/model_runner.h"
#include "tests/engine/runner/recording_model.h"
#include "tests/support/forwarding_device.h"

namespace quire::test {
namespace {

using std::chrono::milliseconds;
using Sizes = std::vector<int>;

struct Times {
  milliseconds replay{0}, synchronize{0};
};

class SleepingGraph final : public Graph {
 public:
  explicit SleepingGraph(milliseconds time) : time_(time) {}
  void replay(StreamRef) override { std::this_thread::sleep_for(time_); }

 private:
  milliseconds time_;
};

class TimedGraphs final : public ForwardingDevice {
 public:
  explicit TimedGraphs(Times times) : ForwardingDevice(make_cpu_device()), times_(times) {}
  std::unique_ptr<Graph> capture(const std::function<void()>& body) override {
    body();
    ++num_captures;
    return std::make_unique<SleepingGraph>(times_.replay);
  }
  void synchronize(StreamRef) override { std::this_thread::sleep_for(times_.synchronize); }

  int num_captures = 0;

 private:
  Times times_;
};

struct Kept {
  Sizes sizes;
  int num_captures = 0;
};

Kept kept(Times times, bool keeps_faster) {
  TimedGraphs device(times);
  const auto ops = make_cpu_ops({.threads = 1});
  const KvPlan plan = attention_plan(20, 64);
  KvMemory memory(device, plan);
  RecordingModel model;
  ModelRunner runner(device, *ops, model, memory, plan,
                     {.limits = {.max_num_seqs = 4,
                                 .max_num_batched_tokens = 32,
                                 .max_model_len = static_cast<int>(plan.max_model_len)},
                      .mixed_graph_sizes = {4, 8},
                      .keeps_faster_mixed = keeps_faster});
  runner.warm_up();
  return {runner.graphs().mixed_sizes(), device.num_captures};
}

}  // namespace

TEST_CASE("graphs of steps with prompts are kept where they are faster", "[engine][runner]") {
  CHECK(kept({}, true).sizes == Sizes{4, 8});
  const Kept slower = kept({.replay = milliseconds(4)}, true);
  CHECK(slower.sizes.empty());
  CHECK(slower.num_captures == 2);  // each is tried
  CHECK(kept({.replay = milliseconds(4)}, false).sizes == Sizes{4, 8});  // those that were named
}

TEST_CASE("where a step hides the host, no larger one is tried", "[engine][runner]") {
  const Kept none = kept({.synchronize = milliseconds(30)}, true);  // of three steps
  CHECK(none.sizes.empty());
  CHECK(none.num_captures == 1);
}

}  // namespace quire::test
