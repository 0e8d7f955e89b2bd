// Prompts over an fp8 cache where operators know the rows on the host and have a workspace: what a
// backend does with these must not change what comes out, however small the workspace.

#include <catch2/catch.hpp>

#include "tests/ops/attention_case.h"

namespace quire::test {
namespace {

const auto kBf16 = DType::bf16, kF16 = DType::f16, kFp8 = DType::fp8_e4m3;

const std::vector<AttentionCase> kCases = {
    {"prompt", kBf16, kFp8, 8, 2, 64, 64, 16, 0, 0.f, false, {{0, 150}}, {.7f, 1.6f}},
    {"sinks, in f16", kF16, kFp8, 6, 2, 96, 96, 32, 0, 0.f, true, {{90, 70}}, {.4f, .9f}},
    {"soft cap", kBf16, kFp8, 4, 1, 128, 128, 16, 0, 4.f, true, {{250, 45}}, {.7f, .4f}},
    {"wide heads", kBf16, kFp8, 4, 2, 256, 256, 16, 0, 0.f, true, {{130, 40}}, {.9f, 1.1f}},
    {"window", kBf16, kFp8, 4, 2, 64, 64, 48, 70, 0.f, true, {{330, 150}, {0, 33}}, {.7f, 3.f}},
    {"window, wide heads", kF16, kFp8, 2, 1, 256, 256, 16, 200, 5.f, true, {{500, 70}}, {.6f, 2.f}},
    {"pages of 256", kF16, kFp8, 4, 1, 96, 96, 256, 0, 4.f, false, {{840, 40}}, {2.f, .3f}},
    {"beside decodes and drafts",
     kBf16,
     kFp8,
     8,
     2,
     128,
     128,
     16,
     0,
     0.f,
     true,
     {{640, 1}, {0, 25}, {300, 2}, {517, 6}, {5, 0}, {40, 3}, {131, 60}, {0, 1}},
     {.7f, 1.3f}},
    {"parts behind a long context",
     kBf16,
     kFp8,
     4,
     1,
     64,
     64,
     16,
     0,
     0.f,
     true,
     {{1500, 30}, {900, 5}},
     {.6f, 1.3f}},
    {"many heads", kBf16, kFp8, 10, 5, 64, 64, 16, 0, 0.f, true, {{200, 20}, {9, 90}}, {1.1f, .5f}},
};

std::int64_t planned_bytes(OpBackend& backend, const AttentionCase& c) {
  std::int64_t longest = 0;
  for (const AttentionRequest& r : c.requests) longest = std::max(longest, r.cached + r.fresh);
  const std::size_t bytes = backend.ops->traits().attention_workspace_bytes(
      {c.kv_heads, c.head_dim, longest, c.q_dtype, c.cache_dtype});
  CHECK((bytes > 0) == (backend.name == "cuda"));
  return static_cast<std::int64_t>(bytes);
}

// In the planned workspace, which has all heads of the longest request; in one for one head of it;
// and in too little.
void check_case(const AttentionCase& c, bool poisoned) {
  INFO(c.name);
  AttentionData data(c, 11);
  const std::vector<double> want = data.reference();
  if (poisoned) data.poison_unused(/*before_windows=*/c.window > 0);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const std::int64_t planned = planned_bytes(backend, c);
    for (const std::int64_t bytes : {planned, planned / c.kv_heads, planned / 64}) {
      INFO(bytes);
      data.know_rows(bytes);
      const HostTensor got = data.run(run);
      check_close(got, want);
      CHECK(same_bits(data.run(run, 1 << 14), got));
    }
  }
}

}  // namespace

TEST_CASE("prompts over an fp8 cache attend to what each position may see", "[ops][attention]") {
  check_case(GENERATE(from_range(kCases)), false);
}

TEST_CASE("what no row of a prompt over an fp8 cache sees is never read into a result",
          "[ops][attention][unseen]") {
  const AttentionCase c = GENERATE(from_range(kCases));
  if (c.window > 0 && c.requests.size() > 1) return;  // poisoned is what is before all windows
  check_case(c, true);
}

TEST_CASE("more prompts over an fp8 cache than a launch takes are all attended to",
          "[ops][attention][large]") {
  AttentionCase c{"many", kBf16, kFp8, 8, 1, 64, 64, 16, 0, 0.f, false, {}, {.8f, 1.2f}};
  for (std::int64_t r = 0; r < 150; ++r) c.requests.push_back({r % 7 * 20, r % 5 == 0 ? 1 : 9});
  check_case(c, false);
}

}  // namespace quire::test
