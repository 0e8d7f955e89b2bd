// What a decode step costs around the model: arrays, draw, hand-over to the client. The model is
// the recording one, which does next to nothing; its share and the CPU's argmax are shown apart.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <vector>

#include "cpu/cpu_backend.h"
#include "engine/runner/model_runner.h"
#include "tests/engine/runner/recording_model.h"

namespace quire::test {
namespace {

using PerfClock = std::chrono::steady_clock;

struct Steady {
  std::deque<Request> requests;
  BatchPlan plan;
};

// Every request decodes one token per step, far from the end of its block.
Steady steady_batch(int rows, int context) {
  Steady steady;
  const int blocks_per_row = context / 8 + 1;
  for (int row = 0; row < rows; ++row) {
    RequestInit init;
    init.id = RequestId{static_cast<std::uint64_t>(row) + 1};
    init.prompt.assign(context + 1, row % RecordingModel::kVocab);
    init.sampling.temperature = 0;
    Request& request = steady.requests.emplace_back(std::move(init));
    steady.plan.rows.push_back({.request = &request,
                                .slot = row,
                                .num_computed = context,
                                .num_tokens = 1,
                                .is_new = true,
                                .samples = true});
    steady.plan.block_updates.push_back(
        {.row = row,
         .group = 0,
         .first = static_cast<std::int32_t>(steady.plan.block_ids.size()),
         .count = blocks_per_row});
    for (int b = 0; b < blocks_per_row; ++b) steady.plan.block_ids.push_back(1 + b);
  }
  steady.plan.num_tokens = rows;
  return steady;
}

double microseconds_per_step(int rows) {
  constexpr int kContext = 2000;
  constexpr int kRounds = 9;
  constexpr int kSteps = 300;
  const KvPlan kv = attention_plan(600, 4096);
  auto device = make_cpu_device();
  auto ops = make_cpu_ops({.threads = 1});
  KvMemory memory(*device, kv);
  RecordingModel model;
  model.recording = false;
  ModelRunner runner(
      *device, *ops, model, memory, kv,
      {.limits = {.max_num_seqs = rows, .max_num_batched_tokens = rows, .max_model_len = 4096}});
  Steady steady = steady_batch(rows, kContext);
  const auto step = [&] {
    runner.launch(steady.plan);
    runner.collect();
  };
  step();
  steady.plan.block_updates.clear();
  for (BatchRow& row : steady.plan.rows) row.is_new = false;
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = PerfClock::now();
    for (int i = 0; i < kSteps; ++i) step();
    const std::chrono::duration<double, std::micro> took = PerfClock::now() - start;
    best = std::min(best, took.count() / kSteps);
  }
  return best;
}

// The recording model and the CPU's greedy draw alone.
double microseconds_of_model(int rows) {
  auto device = make_cpu_device();
  auto ops = make_cpu_ops({.threads = 1});
  RecordingModel model;
  model.recording = false;
  constexpr int kVocab = RecordingModel::kVocab;
  std::vector<float> logits(static_cast<std::size_t>(rows) * kVocab);
  std::vector<float> hidden(static_cast<std::size_t>(rows) * 2);
  std::vector<std::int32_t> ids(rows, 1);
  std::vector<float> zeros(rows, 0.f);
  std::vector<std::int64_t> unused(rows, 0);
  const TensorView id_view(ids.data(), DType::i32, {rows});
  const TensorView hidden_view(hidden.data(), DType::f32, {rows, 2});
  const TensorView logits_view(logits.data(), DType::f32, {rows, kVocab});
  const TensorView zero_view(zeros.data(), DType::f32, {rows});
  SamplingArgs args{.temperature = zero_view,
                    .top_k = id_view,
                    .top_p = zero_view,
                    .min_p = zero_view,
                    .seed = TensorView(unused.data(), DType::u64, {rows}),
                    .position = TensorView(unused.data(), DType::i64, {rows})};
  Workspace workspace(device->allocate(64));
  const ForwardContext context{.ops = *ops,
                               .stream = device->stream(),
                               .workspace = workspace,
                               .positions = id_view,
                               .query_start = {},
                               .seq_lens = {},
                               .groups = {}};
  double best = 1e9;
  for (int round = 0; round < 9; ++round) {
    const auto start = PerfClock::now();
    for (int i = 0; i < 300; ++i) {
      model.forward(hidden_view, id_view, context);
      model.logits(logits_view, hidden_view, context);
      ops->sample(id_view, logits_view, args, device->stream());
    }
    const std::chrono::duration<double, std::micro> took = PerfClock::now() - start;
    best = std::min(best, took.count() / 300);
  }
  return best;
}

}  // namespace
}  // namespace quire::test

int main() {
  fmt::print("{:>6} {:>12} {:>12} {:>14}\n", "rows", "µs/step", "µs of model", "own ns/row");
  for (const int rows : {1, 8, 32, 128, 256}) {
    const double all = quire::test::microseconds_per_step(rows);
    const double model = quire::test::microseconds_of_model(rows);
    fmt::print("{:>6} {:>12.2f} {:>12.2f} {:>14.0f}\n", rows, all, model,
               (all - model) * 1000 / rows);
  }
}
