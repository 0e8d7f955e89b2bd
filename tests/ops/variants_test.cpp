// What measurements set (cuda/runtime/variants.h) changes how fast an operator is, and nothing
// else.

#include <catch2/catch.hpp>

#include "cuda/runtime/variants.h"
#include "tests/ops/attention_case.h"
#include "tests/ops/state_case.h"

namespace quire::test {
namespace {

struct Restored {
  ~Restored() { cuda::variants = {}; }
};

}  // namespace

TEST_CASE("attention is the same in every way that measurements know", "[ops][attention]") {
  const Restored restored;
  const auto bf16 = DType::bf16;
  const AttentionCase c = GENERATE_COPY(from_range(std::vector<AttentionCase>{
      {"decode", bf16, bf16, 8, 2, 64, 64, 16, 0, 0.f, false, {{700, 1}, {40, 1}, {299, 1}}},
      {"prompts", bf16, bf16, 4, 1, 64, 64, 16, 0, 0.f, false, {{1100, 20}, {3, 1}, {600, 9}}}}));
  INFO(c.name);
  const AttentionData data(c, 1);
  const std::vector<double> want = data.reference();
  for (const cuda::Variants& way :
       {cuda::Variants{.begins_ahead = false}, cuda::Variants{.warpgroups = false},
        cuda::Variants{.parts_percent = 0}, cuda::Variants{.parts_percent = 50},
        cuda::Variants{.parts_percent = 200}}) {
    INFO(way.begins_ahead << way.warpgroups << ", " << way.parts_percent);
    OpRun run(op_backends().front());
    cuda::variants = way;
    check_close(data.run(run), want);
  }
}

TEMPLATE_TEST_CASE("chunks that are prepared ahead and in turn have the same bits", "[ops][state]",
                   DeltaCase, ScanCase) {
  const Restored restored;
  const StateSteps steps{"chunks", {260, 3, 64, 130}, {3, -1, 2, -1}, {4, 5, 2, 6}};
  const auto c = GENERATE(from_range(TestType::cases()));
  INFO(TestType::kName << ", " << c.name);
  OpRun run(op_backends().front());
  if (c.chunk(run.ops().traits()) == 1) return;
  const TestType data(c, steps, 1);
  const StateRun ahead = data.run(run, steps, 0);
  cuda::variants.chunks_ahead = false;
  const StateRun in_turn = data.run(run, steps, 0);
  CHECK(in_turn.out.bytes == ahead.out.bytes);
  CHECK(in_turn.state.bytes == ahead.state.bytes);
}

}  // namespace quire::test
