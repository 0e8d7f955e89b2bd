// What measurements set (cuda/runtime/variants.h) changes how fast an operator is, and nothing
// else.

#include <catch2/catch.hpp>

#include "cuda/runtime/variants.h"
#include "tests/ops/attention_case.h"

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

}  // namespace quire::test
