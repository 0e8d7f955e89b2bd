// Which prompts over an fp8 cache are widened, and in how many rounds: by launches. What comes out
// is the operator tests'.

#include <catch2/catch.hpp>

#include "cuda/cuda_backend.h"
#include "cuda/widened_scratch.h"
#include "tests/cuda_emulation/launch.h"
#include "tests/ops/attention_case.h"

namespace quire::test {
namespace {

// Of attention_mma: one kernel for few rows, and one for more. A round is two.
constexpr std::uint64_t kFew = 1, kMore = 1, kRound = 2;

AttentionCase case_of(std::vector<AttentionRequest> requests) {
  return {"launches", DType::bf16, DType::fp8_e4m3,    8, 2, 64, 64, 16, 0,
          0.f,        false,       std::move(requests)};
}

// With a workspace of so many pages of one KV head, of which there are two; 0: with none.
std::uint64_t launches(const AttentionCase& c, std::int64_t pages, bool knows_rows = true) {
  static OpBackend backend = [] {
    auto device = make_cuda_device({});
    auto ops = make_cuda_ops(*device);
    return OpBackend{"cuda", std::move(device), std::move(ops)};
  }();
  AttentionData data(c, 5);
  OpRun run(backend);
  if (knows_rows) data.know_rows(pages * cuda::widened_page_bytes(c.head_dim));
  std::uint64_t before = 0;  // of uploads
  data.before_attention([&] { before = emulation::num_launches(); });
  data.run(run);
  return emulation::num_launches() - before;
}

}  // namespace

TEST_CASE("prompts are widened in as many rounds as the workspace makes of them", "[cuda]") {
  const AttentionCase two_pages = case_of({{0, 150}});
  CHECK(launches(two_pages, 4) == kFew + kRound);
  CHECK(launches(two_pages, 3) == kFew + 2 * kRound);
  CHECK(launches(two_pages, 2) == kFew + 2 * kRound);
  const AttentionCase three = case_of({{0, 150}, {300, 1}, {100, 90}, {200, 100}});
  CHECK(launches(three, 14) == kFew + kRound);
  CHECK(launches(three, 7) == kFew + 2 * kRound);
  CHECK(launches(three, 4) == kFew + 4 * kRound);  // two of them, then one, by heads
}

TEST_CASE("what the host does not know or has no room for is not widened", "[cuda]") {
  const AttentionCase two_pages = case_of({{0, 150}});
  CHECK(launches(two_pages, 1) == kFew + kMore);
  CHECK(launches(two_pages, 0) == kFew + kMore);
  CHECK(launches(two_pages, 4, false) == kFew + kMore);
  CHECK(launches(case_of({{0, 60}}), 4) == kFew + kMore);    // a page
  CHECK(launches(case_of({{500, 2}, {90, 1}}), 4) == kFew);  // few rows
}

// Of whom one block a KV head has all rows: the emulated device has four multiprocessors.
TEST_CASE("requests of few rows are widened where they leave the device idle", "[cuda]") {
  std::vector<AttentionRequest> drafts(2, {300, 5});
  CHECK(launches(case_of(drafts), 18) == kFew + kRound);
  drafts.push_back({300, 5});
  CHECK(launches(case_of(drafts), 24) == kFew + kMore);
  drafts.push_back({0, 40});
  CHECK(launches(case_of(drafts), 24) == kFew + kMore + kRound);
}

TEST_CASE("the workspace of an fp8 cache has one head of the longest request at least", "[cuda]") {
  const auto bytes = [](std::int64_t heads, std::int64_t dim, std::int64_t longest,
                        DType dtype = DType::bf16, DType cache = DType::fp8_e4m3) {
    return cuda_traits().attention_workspace_bytes({heads, dim, longest, dtype, cache});
  };
  constexpr std::size_t kMiB = 1 << 20;
  CHECK(bytes(8, 128, 8192) == 32 * kMiB);
  CHECK(bytes(8, 128, 8191) == 32 * kMiB);
  CHECK(bytes(8, 128, 131072) == 128 * kMiB);
  CHECK(bytes(8, 128, 1 << 20) == 512 * kMiB);
  CHECK(bytes(8, 128, 0) == 128 * kMiB);
  CHECK(bytes(8, 80, 8192) == 0);
  CHECK(bytes(8, 128, 8192, DType::f32) == 0);
  CHECK(bytes(8, 128, 8192, DType::bf16, DType::bf16) == 0);
}

}  // namespace quire::test
