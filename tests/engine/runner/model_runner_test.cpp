#include "engine/runner/model_runner.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>

#include "cpu/cpu_backend.h"
#include "tests/engine/runner/recording_model.h"

namespace quire::test {
namespace {

using Ints = std::vector<std::int32_t>;

// A runner over the recording model, and requests whose plans the test writes by hand.
class Bench {
 public:
  explicit Bench(KvPlan plan = attention_plan(20, 64), int max_num_seqs = 4,
                 std::vector<int> graph_sizes = {})
      : plan_(std::move(plan)),
        device_(make_cpu_device()),
        ops_(make_cpu_ops({.threads = 1})),
        memory_(*device_, plan_),
        runner_(*device_, *ops_, model, memory_, plan_,
                {.limits = {.max_num_seqs = max_num_seqs,
                            .max_num_batched_tokens = 32,
                            .max_model_len = static_cast<int>(plan_.max_model_len)},
                 .graph_sizes = std::move(graph_sizes)}) {}

  Request& add(std::vector<TokenId> prompt, SamplingParams sampling = greedy()) {
    RequestInit init;
    init.id = RequestId{requests_.size() + 1};
    init.prompt = std::move(prompt);
    init.sampling = std::move(sampling);
    return requests_.emplace_back(std::move(init));
  }

  static SamplingParams greedy() {
    SamplingParams sampling;
    sampling.temperature = 0;
    return sampling;
  }

  Device& device() { return *device_; }
  KvMemory& memory() { return memory_; }
  ModelRunner& runner() { return runner_; }
  const RecordedStep& last() const { return model.steps.back(); }

  RecordingModel model;

 private:
  KvPlan plan_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  KvMemory memory_;
  ModelRunner runner_;
  std::deque<Request> requests_;
};

void add_row(BatchPlan& plan, BatchRow row, std::vector<std::vector<BlockId>> blocks) {
  const auto index = static_cast<std::int32_t>(plan.rows.size());
  plan.rows.push_back(row);
  plan.num_tokens += row.num_tokens;
  for (std::size_t group = 0; group < blocks.size(); ++group) {
    if (blocks[group].empty()) continue;
    plan.block_updates.push_back({.row = index,
                                  .group = static_cast<std::int32_t>(group),
                                  .first = static_cast<std::int32_t>(plan.block_ids.size()),
                                  .count = static_cast<std::int32_t>(blocks[group].size())});
    plan.block_ids.insert(plan.block_ids.end(), blocks[group].begin(), blocks[group].end());
  }
}

std::vector<TokenId> run(ModelRunner& runner, const BatchPlan& plan) {
  runner.launch(plan);
  const StepTokens tokens = runner.collect();
  return {tokens.sampled.begin(), tokens.sampled.end()};
}

TEST_CASE("a decode row, a whole prompt and a chunk in one step", "[engine][runner]") {
  Bench bench;
  Request& a = bench.add({1, 2, 3, 4, 5, 6, 7});
  BatchPlan first;
  add_row(first, {.request = &a, .slot = 2, .num_tokens = 7, .is_new = true, .samples = true},
          {{3}});
  const auto token = run(bench.runner(), first);
  CHECK(token == Ints{RecordingModel::next(7, 6)});
  a.append(token[0]);

  Request& b = bench.add({10, 11, 12});
  Request& c = bench.add({20, 21, 22, 23, 24, 25});
  BatchPlan second;
  add_row(second, {.request = &a, .slot = 2, .num_computed = 7, .num_tokens = 1, .samples = true},
          {});
  add_row(second, {.request = &b, .slot = 0, .num_tokens = 3, .is_new = true, .samples = true},
          {{5}});
  add_row(second, {.request = &c, .slot = 1, .num_tokens = 4, .is_new = true}, {{7}});
  CHECK(run(bench.runner(), second) ==
        Ints{RecordingModel::next(token[0], 7), RecordingModel::next(12, 2), -1});
  CHECK(bench.model.logits_rows == 2);  // only rows that sample

  const RecordedStep& step = bench.last();
  CHECK(step.ids == Ints{token[0], 10, 11, 12, 20, 21, 22, 23});
  CHECK(step.positions == Ints{7, 0, 1, 2, 0, 1, 2, 3});
  CHECK(step.query_start == Ints{0, 1, 4, 8});
  CHECK(step.seq_lens == Ints{8, 3, 4});
  CHECK(step.max_query_len == 4);
  CHECK(step.max_seq_len == 8);
  REQUIRE(step.groups.size() == 1);
  // Block b is kernel blocks 2 b and 2 b + 1 of 4 tokens.
  CHECK(step.groups[0].slots == std::vector<std::int64_t>{3 * 8 + 7, 5 * 8, 5 * 8 + 1, 5 * 8 + 2,
                                                          7 * 8, 7 * 8 + 1, 7 * 8 + 2, 7 * 8 + 3});
  REQUIRE(step.groups[0].tables.size() == 3);
  CHECK(step.groups[0].tables[0].size() == 16);  // 64 tokens in kernel blocks
  CHECK(step.groups[0].tables[0][0] == 6);
  CHECK(step.groups[0].tables[0][1] == 7);
  CHECK(step.groups[0].tables[1][0] == 10);
  CHECK(step.groups[0].tables[2][0] == 14);
}

TEST_CASE("who has logits that are no numbers is named, the others go on", "[engine][runner]") {
  Bench bench;
  bench.model.damaged = 12;
  Request& well = bench.add({1, 2, 3});
  Request& ill = bench.add({10, 11, 12});
  BatchPlan plan;
  add_row(plan, {.request = &well, .slot = 0, .num_tokens = 3, .is_new = true, .samples = true},
          {{5}});
  add_row(plan, {.request = &ill, .slot = 1, .num_tokens = 3, .is_new = true, .samples = true},
          {{6}});
  CHECK(run(bench.runner(), plan) == Ints{RecordingModel::next(3, 2), 0});
  REQUIRE(bench.runner().undrawn().size() == 1);
  CHECK(bench.runner().undrawn()[0] == ill.id());
  bench.model.damaged = -1;
  plan.rows[0].is_new = plan.rows[1].is_new = false;
  run(bench.runner(), plan);
  CHECK(bench.runner().undrawn().empty());
}

TEST_CASE("blocks are appended as a request grows", "[engine][runner]") {
  Bench bench;
  Request& a = bench.add({1, 2, 3, 4, 5, 6, 7, 8});
  BatchPlan first;
  add_row(first, {.request = &a, .slot = 0, .num_tokens = 8, .is_new = true, .samples = true},
          {{3}});
  a.append(run(bench.runner(), first)[0]);
  BatchPlan second;
  add_row(second, {.request = &a, .slot = 0, .num_computed = 8, .num_tokens = 1, .samples = true},
          {{9}});
  run(bench.runner(), second);
  CHECK(bench.last().groups[0].slots == std::vector<std::int64_t>{9 * 8});
  const Ints table = bench.last().groups[0].tables[0];
  CHECK(Ints(table.begin(), table.begin() + 4) == Ints{6, 7, 18, 19});
}

TEST_CASE("a slot given to another request forgets the first", "[engine][runner]") {
  Bench bench;
  Request& a = bench.add({1, 2, 3});
  BatchPlan first;
  add_row(first, {.request = &a, .slot = 0, .num_tokens = 3, .is_new = true, .samples = true},
          {{3, 4}});
  run(bench.runner(), first);
  Request& b = bench.add({9});
  BatchPlan second;
  add_row(second, {.request = &b, .slot = 0, .num_tokens = 1, .is_new = true, .samples = true},
          {{11}});
  run(bench.runner(), second);
  CHECK(bench.last().groups[0].tables[0][0] == 22);
  CHECK(bench.last().groups[0].slots == std::vector<std::int64_t>{88});
}

TEST_CASE("a token still on the device feeds the next step", "[engine][runner]") {
  Bench bench;
  Request& a = bench.add({4, 5, 6});
  Request& b = bench.add({30, 31});
  BatchPlan first;
  add_row(first, {.request = &a, .slot = 3, .num_tokens = 2, .is_new = true}, {{3}});
  add_row(first, {.request = &b, .slot = 1, .num_tokens = 2, .is_new = true, .samples = true},
          {{4}});
  bench.runner().launch(first);
  // Planned before the first step is collected; rows in another order.
  BatchPlan second;
  add_row(second,
          {.request = &b,
           .slot = 1,
           .num_computed = 2,
           .num_tokens = 1,
           .num_pending = 1,
           .samples = true},
          {});
  add_row(second, {.request = &a, .slot = 3, .num_computed = 2, .num_tokens = 1, .samples = true},
          {});
  bench.runner().launch(second);
  const TokenId of_b = RecordingModel::next(31, 1);
  CHECK(bench.last().ids == Ints{of_b, 6});
  const StepTokens one = bench.runner().collect();
  CHECK(Ints(one.sampled.begin(), one.sampled.end()) == Ints{-1, of_b});
  const StepTokens two = bench.runner().collect();
  CHECK(Ints(two.sampled.begin(), two.sampled.end()) ==
        Ints{RecordingModel::next(of_b, 2), RecordingModel::next(6, 2)});
}

TEST_CASE("one state per request: from zero, then in place", "[engine][runner]") {
  Bench bench(hybrid_plan(20, 64, StateCacheMode::none, 64));
  Request& a = bench.add({1, 2, 3});
  BatchPlan first;
  add_row(first, {.request = &a, .slot = 0, .num_tokens = 2, .is_new = true}, {{3}, {12}});
  run(bench.runner(), first);
  CHECK(bench.last().groups[1].state_read == Ints{-1});
  CHECK(bench.last().groups[1].state_write == Ints{12});
  CHECK(bench.last().groups[1].slots.empty());
  BatchPlan second;
  add_row(second, {.request = &a, .slot = 0, .num_computed = 2, .num_tokens = 1, .samples = true},
          {{}, {}});
  run(bench.runner(), second);
  CHECK(bench.last().groups[1].state_read == Ints{12});
  CHECK(bench.last().groups[1].state_write == Ints{12});
}

TEST_CASE("states at block boundaries: read the old block, write the new", "[engine][runner]") {
  Bench bench(hybrid_plan(20, 64, StateCacheMode::align, 4));
  Request& a = bench.add({1, 2, 3, 4, 5});
  BatchPlan first;
  add_row(first, {.request = &a, .slot = 0, .num_tokens = 4, .is_new = true}, {{3}, {12}});
  run(bench.runner(), first);
  CHECK(bench.last().groups[1].state_write == Ints{12});
  BatchPlan second;
  add_row(second, {.request = &a, .slot = 0, .num_computed = 4, .num_tokens = 1, .samples = true},
          {{}, {13}});
  run(bench.runner(), second);
  CHECK(bench.last().groups[1].state_read == Ints{12});
  CHECK(bench.last().groups[1].state_write == Ints{13});

  // A prefix hit: the state comes from the cached block, which stays as it is.
  Request& b = bench.add({1, 2, 3, 4, 9});
  BatchPlan third;
  add_row(third,
          {.request = &b,
           .slot = 1,
           .num_computed = 4,
           .num_tokens = 1,
           .is_new = true,
           .samples = true},
          {{3}, {12, 14}});
  run(bench.runner(), third);
  CHECK(bench.last().groups[1].state_read == Ints{12});
  CHECK(bench.last().groups[1].state_write == Ints{14});
}

TEST_CASE("the cache is what the plan says, zeroed, block by block", "[engine][runner]") {
  Bench bench(hybrid_plan(20, 64, StateCacheMode::none, 64));
  const std::vector<LayerKvSpec> specs{{"attention.0", {}}, {"state.0", {}}, {"attention.1", {}}};
  const auto layers = bench.memory().layers(specs);
  REQUIRE(layers.size() == 3);
  CHECK(layers[0].base == layers[1].base);  // one tensor, shared by blocks
  CHECK(layers[0].base != layers[2].base);
  CHECK(layers[0].group == 0);
  CHECK(layers[1].group == 1);
  CHECK(layers[0].kernel_block_size == 4);
  CHECK(layers[0].page_bytes == 256);
  CHECK(layers[1].spec.kind == KvKind::mamba);
  CHECK(bench.memory().bytes() == 2 * 20 * 256);

  auto* bytes = static_cast<char*>(layers[0].base);
  CHECK(std::all_of(bytes, bytes + 20 * 256, [](char c) { return c == 0; }));
  std::memset(bytes, 1, 20 * 256);
  const std::vector<BlockId> blocks{4, 5, 9};
  bench.memory().zero_blocks(blocks, bench.device().stream());
  for (int block = 0; block < 20; ++block) {
    const bool zeroed = block == 4 || block == 5 || block == 9;
    CHECK(std::all_of(bytes + block * 256, bytes + (block + 1) * 256,
                      [&](char c) { return c == (zeroed ? 0 : 1); }));
  }
  CHECK_THROWS_AS(bench.memory().layers(std::vector<LayerKvSpec>{{"unknown", {}}}), Failure);
}

TEST_CASE("warming up leaves no trace", "[engine][runner]") {
  Bench bench;
  bench.runner().warm_up();
  CHECK(bench.model.steps.size() == 2);
  Request& a = bench.add({1, 2, 3});
  BatchPlan plan;
  add_row(plan, {.request = &a, .slot = 0, .num_tokens = 3, .is_new = true, .samples = true},
          {{3}});
  CHECK(run(bench.runner(), plan) == Ints{RecordingModel::next(3, 2)});
  CHECK(bench.last().groups[0].tables[0][0] == 6);
}

TEST_CASE("a device that captures nothing runs every step itself", "[engine][runner]") {
  Bench bench(attention_plan(20, 64), 4, {2, 4});
  bench.runner().warm_up();
  CHECK(bench.runner().graphs().shape_for(1, 0).num_rows == 0);
  Request& a = bench.add({5});
  BatchPlan plan;
  add_row(plan, {.request = &a, .slot = 0, .num_tokens = 1, .is_new = true, .samples = true},
          {{3}});
  CHECK(run(bench.runner(), plan) == Ints{RecordingModel::next(5, 0)});
}

TEST_CASE("an observer sees the logits of every position", "[engine][runner]") {
  Bench bench(attention_plan(20, 64), 2);  // pieces of two rows
  std::vector<std::pair<int, TokenId>> seen;
  bench.runner().observe_logits([&](RequestId, int position, std::span<const float> logits) {
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    seen.emplace_back(position, static_cast<TokenId>(best));
  });
  Request& a = bench.add({1, 2, 3, 4, 5});
  BatchPlan plan;
  add_row(plan, {.request = &a, .slot = 0, .num_tokens = 5, .is_new = true, .samples = true},
          {{3}});
  CHECK(run(bench.runner(), plan) == Ints{RecordingModel::next(5, 4)});
  REQUIRE(seen.size() == 5);
  for (int i = 0; i < 5; ++i) {
    CHECK(seen[i].first == i);
    CHECK(seen[i].second == RecordingModel::next(a.tokens()[i], i));
  }
}

TEST_CASE("a prompt's log-probabilities, over chunks", "[engine][runner]") {
  Bench bench(attention_plan(20, 64), 2);
  SamplingParams sampling = Bench::greedy();
  sampling.prompt_logprobs = 1;
  const TokenId likely = RecordingModel::next(8, 0);
  Request& a = bench.add({8, likely, 50, 51}, sampling);
  BatchPlan first;
  add_row(first, {.request = &a, .slot = 0, .num_tokens = 3, .is_new = true}, {{3}});
  run(bench.runner(), first);
  BatchPlan second;
  add_row(second, {.request = &a, .slot = 0, .num_computed = 3, .num_tokens = 1, .samples = true},
          {});
  run(bench.runner(), second);
  const auto positions = bench.runner().take_prompt_logprobs(a.id());
  REQUIRE(positions.size() == 3);
  const double log_sum = std::log(std::exp(5.0) + RecordingModel::kVocab - 1);
  CHECK(positions[0].rank == 1);
  CHECK(positions[0].chosen == Approx(5 - log_sum).margin(1e-4));
  CHECK(positions[0].top_ids == Ints{likely});
  for (int i : {1, 2}) {
    CHECK(positions[i].chosen == Approx(-log_sum).margin(1e-4));
    CHECK(positions[i].rank > 1);
  }
  CHECK(bench.runner().take_prompt_logprobs(a.id()).empty());
}

}  // namespace
}  // namespace quire::test
