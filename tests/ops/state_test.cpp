#include <catch2/catch.hpp>

#include "tests/ops/state_case.h"

namespace quire::test {
namespace {

const auto kF32 = DType::f32, kBf16 = DType::bf16;

template <class T>
std::vector<T> behind(int count, T value, T last) {
  std::vector<T> all(static_cast<std::size_t>(count) + 1, value);
  all.back() = last;
  return all;
}

// Blocks 0 … 7; request r reads reads[r] and writes writes[r].
const std::vector<StateSteps> kSteps = {
    {"fresh", {11}, {-1}, {2}},
    {"goes on in place", {1}, {3}, {3}},
    {"moves to another block", {5}, {3}, {4}},
    {"batch", {1, 9, 0, 3, 70}, {1, -1, 5, 6, 0}, {1, 2, 5, 7, 0}},
    {"not kept", {4, 1}, {1, 2}, {-1, 2}},
    {"several chunks", {260, 3, 64}, {3, -1, 2}, {4, 5, 2}},
    {"a chunk behind many requests", behind<std::int64_t>(33, 0, 70), behind(33, -1, 6),
     behind(33, -1, 1)},
};

}  // namespace

TEMPLATE_TEST_CASE("recurrent operators follow their formula and keep their state", "[ops][state]",
                   ConvCase, DeltaCase, ScanCase) {
  const StateSteps steps = GENERATE(from_range(kSteps));
  const auto c = GENERATE(from_range(TestType::cases()));
  INFO(TestType::kName << ", " << c.name << ", " << steps.name);
  const TestType data(c, steps, 1);
  const StateResult want = data.reference();
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const StateRun got = data.run(run, steps, 0);
    check_close(got.out, want.out);
    check_close(got.state, want.state);
  }
}

TEMPLATE_TEST_CASE("a recurrent operator gives the same bits in one step and in many",
                   "[ops][state][large]", ConvCase, DeltaCase, ScanCase) {
  const auto c = GENERATE(from_range(TestType::cases()));
  constexpr std::int64_t kTokens = 150;
  const std::int64_t cut = GENERATE(1, 2, 13, 64, 69, 128, 135, 149);
  const StateSteps whole{"whole", {kTokens}, {-1}, {2}};
  INFO(TestType::kName << ", " << c.name << ", cut at " << cut);
  const TestType data(c, whole, 2);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const std::int64_t chunk = c.chunk(run.ops().traits());
    if (cut % chunk != 0 && cut < kTokens / chunk * chunk) continue;
    const StateRun once = data.run(run, whole, 0);
    const StateRun first = data.run(run, {"first", {cut}, {-1}, {2}}, 0);
    const StateRun second = data.run(run, {"second", {kTokens - cut}, {2}, {2}}, cut, &first.state);
    if (!c.exact_state()) continue;
    CHECK(same_bits(second.state, once.state));
    std::vector<std::byte> joined = first.out.bytes;
    joined.insert(joined.end(), second.out.bytes.begin(), second.out.bytes.end());
    CHECK(joined == once.out.bytes);
  }
}

// As if a step had ended after each draft, roundings included. Block 3 is read before it is
// written.
TEMPLATE_TEST_CASE("a state behind each draft is that of steps of one token",
                   "[ops][state][drafts]", ConvCase, DeltaCase, ScanCase) {
  const auto c = GENERATE(from_range(TestType::cases()));
  INFO(TestType::kName << ", " << c.name);
  const StateSteps verified{"verified", {4}, {3}, {-1}, {1, 3, 2, 4}};
  const TestType data(c, verified, 3);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const StateRun once = data.run(run, verified, 0);
    HostTensor state = data.run(run, {"0", {1}, {3}, {1}}, 0).state;
    std::vector<std::byte> out = data.run(run, {"0", {1}, {3}, {1}}, 0).out.bytes;
    const std::int32_t blocks[] = {1, 3, 2, 4};
    for (std::int64_t t = 1; t < 4; ++t) {
      const StateRun one = data.run(run, {"one", {1}, {blocks[t - 1]}, {blocks[t]}}, t, &state);
      out.insert(out.end(), one.out.bytes.begin(), one.out.bytes.end());
      state = one.state;
    }
    CHECK(same_bits(once.state, state));
    CHECK(once.out.bytes == out);
  }
}

}  // namespace quire::test
