#include "engine/runner/input_batch.h"

#include <catch2/catch.hpp>
#include <deque>

#include "cpu/cpu_backend.h"
#include "cpu/cpu_ops.h"
#include "tests/engine/runner/recording_model.h"
#include "tests/support/pretend_device.h"

namespace quire::test {
namespace {

using Ints = std::vector<std::int32_t>;
using Slots = std::vector<std::int64_t>;

template <class T = std::int32_t>
std::vector<T> values(TensorView view) {
  const auto* data = static_cast<const T*>(view.data());
  return {data, data + view.numel()};
}

// Batches on a device with memory of its own, which counts the copies to it. Blocks of 8 tokens are
// two kernel blocks of 4.
struct Bench {
  explicit Bench(KvPlan plan = attention_plan(20, 64))
      : groups(plan.groups()), batch(device, *ops, groups, {4, 32, 64}) {}

  const Request& request(Ints prompt) {
    RequestInit init;
    init.id = RequestId{requests.size() + 1};
    init.prompt = std::move(prompt);
    return requests.emplace_back(std::move(init));
  }
  const StepInputs& build(const BatchPlan& plan, int num_rows) {
    return build(plan, {.num_drafts = 0, .num_rows = num_rows});
  }
  const StepInputs& build(const BatchPlan& plan, const GraphShape& graph) {
    const int before = *copies_left;
    const StepInputs& inputs = batch.build(plan, graph, device.stream());
    num_copies = before - *copies_left;
    batch.expand(device.stream());
    return inputs;
  }

  std::shared_ptr<std::atomic<int>> copies_left = std::make_shared<std::atomic<int>>(1000);
  PretendDevice device{make_cpu_device(), copies_left};
  std::unique_ptr<Ops> ops = make_cpu_ops({.threads = 1});
  std::vector<KvGroup> groups;
  InputBatch batch;
  std::deque<Request> requests;
  int num_copies = 0;
};

BatchPlan one_row(const Request& request, BatchRow row, std::vector<Ints> blocks) {
  BatchPlan plan;
  row.request = &request;
  row.samples = true;
  plan.rows = {row};
  plan.num_tokens = row.num_tokens;
  for (int group = 0; group < static_cast<int>(blocks.size()); ++group) {
    const Ints& ids = blocks[group];
    plan.block_updates.push_back({.row = 0,
                                  .group = group,
                                  .first = static_cast<std::int32_t>(plan.block_ids.size()),
                                  .count = static_cast<std::int32_t>(ids.size())});
    plan.block_ids.insert(plan.block_ids.end(), ids.begin(), ids.end());
  }
  return plan;
}

TEST_CASE("padding rows read the null block and keep nothing", "[engine][runner]") {
  Bench bench(hybrid_plan(20, 64, StateCacheMode::none, 64));
  const Request& request = bench.request({7, 8, 9});
  bench.build(one_row(request, {.slot = 2, .num_tokens = 2, .is_new = true}, {{3}, {12}}), 0);
  const StepInputs& step =
      bench.build(one_row(request, {.slot = 2, .num_computed = 2, .num_tokens = 1}, {}), 3);
  CHECK(step.num_tokens == 3);
  CHECK(step.num_samples == 1);
  CHECK(step.max_query_len == 1);
  CHECK(values(step.ids) == Ints{9, 0, 0});
  CHECK(values(step.positions) == Ints{2, 0, 0});
  CHECK(values(step.query_start) == Ints{0, 1, 2, 3});
  CHECK(values(step.seq_lens) == Ints{3, 1, 1});
  CHECK(values<std::int64_t>(step.groups[0].slots) == Slots{3 * 8 + 2, kPadSlot, kPadSlot});
  REQUIRE(step.groups[0].block_table.extent(0) == 3);
  CHECK(values(step.groups[0].block_table.rows(0, 1))[0] == 6);
  CHECK(values(step.groups[0].block_table.rows(1, 3)) == Ints(2 * 16, 0));
  CHECK(values(step.groups[1].state_read) == Ints{12, -1, -1});
  CHECK(values(step.groups[1].state_write) == Ints{12, -1, -1});
}

TEST_CASE("a mixed step is padded by rows without tokens and one with the rest", "[engine][runner]") {
  Bench bench;
  const GraphShape graph = mixed_shape(8, 4);
  REQUIRE(graph.num_rows == 5);  // one more than requests
  const Request& request = bench.request({7, 8, 9});
  const StepInputs& step = bench.build(
      one_row(request, {.slot = 2, .num_tokens = 3, .is_new = true}, {{3}}), graph);
  CHECK(bench.num_copies == 1);
  CHECK(step.num_tokens == 8);
  CHECK(step.num_samples == 1);
  CHECK(values(step.sample_rows) == Ints{2});
  CHECK(values(step.ids) == Ints{7, 8, 9, 0, 0, 0, 0, 0});
  CHECK(values(step.positions) == Ints{0, 1, 2, 0, 1, 2, 3, 4});
  CHECK(values(step.query_start) == Ints{0, 3, 3, 3, 3, 8});
  CHECK(values(step.seq_lens) == Ints{3, 0, 0, 0, 5});
  Slots slots(8, kPadSlot);
  for (int i = 0; i < 3; ++i) slots[static_cast<std::size_t>(i)] = 3 * 8 + i;
  CHECK(values<std::int64_t>(step.groups[0].slots) == slots);
  CHECK(values(step.groups[0].block_table.rows(1, 5)) == Ints(4 * 16, 0));

  // All requests there can be, and one token too few.
  BatchPlan full;
  for (int slot = 0; slot < 4; ++slot) {
    const Request& other = bench.request({1, 2});
    full.rows.push_back({.request = &other,
                         .slot = slot,
                         .num_tokens = slot == 0 ? 1 : 2,
                         .is_new = true,
                         .samples = true});
    full.block_updates.push_back({.row = slot, .group = 0, .first = slot, .count = 1});
    full.block_ids.push_back(4 + slot);
  }
  full.num_tokens = 7;
  const StepInputs& other = bench.build(full, graph);
  CHECK(values(other.query_start) == Ints{0, 1, 3, 5, 7, 8});
  CHECK(values(other.seq_lens) == Ints{1, 2, 2, 2, 1});
  CHECK(values(other.sample_rows) == Ints{0, 2, 4, 6});
  CHECK(other.groups[0].block_table.data() == step.groups[0].block_table.data());
}

TEST_CASE("steps of one size lie at the same addresses", "[engine][runner]") {
  Bench bench;
  const Request& a = bench.request({1, 2, 3});
  const Request& b = bench.request({4});
  bench.build(one_row(a, {.slot = 0, .num_tokens = 2, .is_new = true}, {{3}}), 0);
  const StepInputs first =
      bench.build(one_row(a, {.slot = 0, .num_computed = 2, .num_tokens = 1}, {{4}}), 4);
  const TensorView table = first.groups[0].block_table, slots = first.groups[0].slots;
  const StepInputs second =
      bench.build(one_row(b, {.slot = 1, .num_tokens = 1, .is_new = true}, {{5, 6, 7}}), 4);
  const auto same = [](TensorView x, TensorView y) {
    return x.data() == y.data() && x.numel() == y.numel();
  };
  CHECK(same(first.ids, second.ids));
  CHECK(same(first.positions, second.positions));
  CHECK(same(first.query_start, second.query_start));
  CHECK(same(first.seq_lens, second.seq_lens));
  CHECK(same(table, second.groups[0].block_table));
  CHECK(same(slots, second.groups[0].slots));
}

TEST_CASE("a step sends one copy", "[engine][runner]") {
  Bench bench(hybrid_plan(20, 64, StateCacheMode::none, 64));
  const Request& request = bench.request({1, 2, 3});
  bench.build(one_row(request, {.slot = 0, .num_tokens = 2, .is_new = true}, {{3, 5}, {12}}), 0);
  CHECK(bench.num_copies == 1);
  bench.build(one_row(request, {.slot = 0, .num_computed = 2, .num_tokens = 1}, {}), 4);
  CHECK(bench.num_copies == 1);
}

// The CPU's operators, as if they read prefixes once.
struct SharingTraits : OpsTraits {
  const OpsTraits& cpu = cpu_traits();
  bool reads_prefixes_once() const override { return true; }
  GraphSupport graph_support(const CacheForm& form) const override { return cpu.graph_support(form); }
  std::size_t moe_workspace_bytes(int num_tokens, const MoeShape& shape) const override {
    return cpu.moe_workspace_bytes(num_tokens, shape);
  }
  std::size_t linear_workspace_bytes(std::int64_t num_tokens, const Weight& weight,
                                     DType x) const override {
    return cpu.linear_workspace_bytes(num_tokens, weight, x);
  }
  std::size_t scratch_bytes() const override { return cpu.scratch_bytes(); }
  std::size_t collectives_bytes() const override { return cpu.collectives_bytes(); }
};
struct SharingOps : CpuOps {
  SharingTraits own;
  SharingOps() : CpuOps({.threads = 1}) {}
  const OpsTraits& traits() const override { return own; }
};

TEST_CASE("rows that share prefixes lie by group", "[engine][runner]") {
  Bench bench(hybrid_plan(20, 64, StateCacheMode::none, 64));
  SharingOps ops;
  InputBatch batch(bench.device, ops, bench.groups, {4, 32, 64, 1});
  BatchPlan plan;
  for (int r = 0; r < 4; ++r) {
    const int tokens = r == 1 ? 2 : r == 2 ? 5 : 1;
    plan.rows.push_back({.request = &bench.request({1, 2, 3, 4, 5}),
                         .slot = r,
                         .num_tokens = tokens,
                         .is_new = true,
                         .samples = true});
    plan.num_tokens += tokens;
  }
  for (int r = 0; r < 4; ++r) {
    for (int group = 0; group < 2; ++group) {
      plan.block_updates.push_back(
          {.row = r, .group = group, .first = static_cast<int>(plan.block_ids.size()), .count = 1});
      plan.block_ids.push_back(3 + 2 * r + group);
    }
  }
  plan.shared_prefixes = {{.num_tokens = 128, .first_row = 0, .num_rows = 2},
                          {.num_tokens = 256, .first_row = 2, .num_rows = 1}};
  plan.shared_rows = {3, 1, 0};
  const SharedPrefixes& shared = batch.build(plan, {}, bench.device.stream()).groups[0].shared;
  Ints starts(kMostPrefixes + 1, 4);
  starts[0] = 0, starts[1] = 3;
  CHECK(values(shared.starts) == starts);
  REQUIRE(shared.members.numel() == 8);
  CHECK(values(shared.members.rows(0, 4)) == Ints{3, 1, 1, 0});
  CHECK(values(shared.places) == Ints{3, 1, -1, 0});
  CHECK(values(shared.lengths) == Ints{256, 128, 0, 128});
  CHECK(shared.longest == 2);
  CHECK(batch.shape().longest_shared == 2);

  plan.shared_prefixes.clear();
  plan.block_updates.clear();
  for (BatchRow& row : plan.rows) row.is_new = false;
  plan.rows.resize(2);
  plan.rows[1].num_tokens = 1;
  plan.num_tokens = 2;
  const StepInputs& step = batch.build(plan, {.num_drafts = 0, .num_rows = 4}, bench.device.stream());
  CHECK(values(step.groups[0].shared.starts) == Ints(kMostPrefixes + 1, 0));
  CHECK(values(step.groups[0].shared.lengths) == Ints{0, 0, 0, 0});
  CHECK(step.groups[0].shared.longest == 1);  // the graph's, whatever the step
  CHECK(step.groups[1].shared.starts.empty());
  CHECK(step.groups[1].shared.longest == 0);
}

}  // namespace
}  // namespace quire::test
