#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/ops/attention_case.h"

namespace quire::test {
namespace {

const auto kF32 = DType::f32, kBf16 = DType::bf16, kF16 = DType::f16, kFp8 = DType::fp8_e4m3;

// {name, q dtype, cache dtype, heads, kv heads, head dim, value dim, block size, window, soft cap,
// sinks, {cached, new}…, scales of an fp8 cache}
const std::vector<AttentionCase> kCases = {
    {"decode of one", kF32, kF32, 4, 2, 64, 64, 16, 0, 0.f, false, {{37, 1}}},
    {"prefill of one", kF32, kF32, 4, 2, 64, 64, 16, 0, 0.f, false, {{0, 90}}},
    {"ragged mixture",
     kF32,
     kF32,
     4,
     4,
     32,
     32,
     16,
     0,
     0.f,
     false,
     {{0, 7}, {65, 1}, {30, 20}, {0, 1}}},
    {"bf16", kBf16, kBf16, 8, 2, 64, 64, 16, 0, 0.f, false, {{0, 40}, {100, 1}, {129, 3}}},
    {"bf16 decode over splits",
     kBf16,
     kBf16,
     8,
     2,
     64,
     64,
     16,
     0,
     0.f,
     true,
     {{700, 1}, {90, 1}, {255, 1}, {256, 1}}},
    {"f16 cache", kF32, kF16, 4, 1, 16, 16, 32, 0, 0.f, false, {{0, 33}, {70, 1}}},
    {"bf16 cache, f32 model", kF32, kBf16, 4, 1, 16, 16, 32, 0, 0.f, false, {{0, 33}, {70, 1}}},
    {"window", kF32, kF32, 4, 2, 16, 16, 16, 24, 0.f, false, {{0, 100}, {99, 1}, {150, 9}}},
    {"window of one", kF32, kF32, 2, 2, 16, 16, 16, 1, 0.f, false, {{0, 20}, {20, 1}}},
    {"soft cap", kF32, kF32, 4, 2, 16, 16, 16, 0, 3.f, false, {{0, 30}, {64, 1}}},
    {"sinks and window", kF32, kF32, 8, 2, 16, 16, 16, 24, 0.f, true, {{0, 70}, {64, 1}}},
    {"odd dimensions", kF32, kF32, 3, 1, 20, 12, 16, 0, 0.f, false, {{0, 21}, {40, 2}}},
    {"many heads to one", kF32, kF32, 40, 1, 24, 16, 16, 0, 0.f, false, {{0, 5}, {80, 1}}},
    {"no new tokens", kF32, kF32, 2, 1, 16, 16, 16, 0, 0.f, false, {{5, 1}, {9, 0}, {3, 2}}},
    {"mma, splits", kBf16, kBf16, 8, 1, 64, 64, 16, 0, 0.f, true, {{700, 1}, {3, 1}, {511, 2}}},
    {"mma, cap", kF16, kF16, 6, 2, 96, 96, 16, 70, 5.f, false, {{0, 30}, {150, 1}, {90, 20}}},
    {"mma, sinks", kBf16, kBf16, 3, 1, 128, 128, 32, 0, 0.f, true, {{0, 9}, {66, 1}, {64, 24}}},
    {"mma, wide heads", kBf16, kBf16, 2, 1, 256, 256, 16, 0, 0.f, false, {{40, 1}, {30, 18}}},
    {"mma, tiles", kBf16, kBf16, 4, 1, 128, 128, 16, 0, 0.f, false, {{300, 45}, {0, 17}, {20, 1}}},
    {"mma, tiles, window", kBf16, kBf16, 2, 2, 64, 64, 48, 70, 0.f, true, {{130, 150}, {0, 33}}},
    {"mma, tiles in rings", kBf16, kBf16, 4, 1, 128, 128, 256, 0, 0.f, false, {{840, 40}, {5, 7}}},
    {"mma, tiles in rings, window", kF16, kF16, 6, 2, 64, 64, 96, 500, 0.f, true, {{900, 70}}},
    {"mma, tiles, cap", kF16, kF16, 8, 2, 128, 128, 32, 0, 4.f, true, {{250, 10}, {0, 40}}},
    {"fp8", kF32, kFp8, 4, 2, 64, 64, 16, 0, 0.f, false, {{0, 33}, {70, 1}}, {.5f, 1.75f}},
    {"fp8, odd", kF32, kFp8, 3, 1, 20, 12, 16, 0, 0.f, false, {{0, 21}, {40, 2}}, {1.3f, .1f}},
    {"fp8, heads of 80", kBf16, kFp8, 4, 2, 80, 80, 16, 0, 0.f, false, {{0, 9}, {70, 1}}, {2, 2}},
    {"fp8, mma", kBf16, kFp8, 8, 2, 64, 64, 16, 0, 0.f, true, {{0, 40}, {129, 3}}, {.7f, 1.6f}},
    {"fp8, splits", kBf16, kFp8, 8, 1, 64, 64, 16, 0, 0.f, true, {{700, 1}, {3, 1}}, {.7f, .3f}},
    {"fp8, cap", kF16, kFp8, 6, 2, 96, 96, 16, 70, 5.f, false, {{0, 30}, {90, 20}}, {.4f, .9f}},
    {"fp8, sinks", kBf16, kFp8, 3, 1, 128, 128, 32, 0, 0.f, true, {{66, 1}, {64, 24}}, {3.f, .5f}},
    {"fp8, wide", kBf16, kFp8, 2, 1, 256, 256, 16, 0, 0.f, false, {{40, 1}, {30, 18}}, {.9f, 1.f}},
    {"fp8, tiles", kF16, kFp8, 4, 1, 128, 128, 16, 0, 0.f, true, {{300, 45}, {0, 17}}, {.7f, .4f}},
    {"fp8, tiles, window", kBf16, kFp8, 2, 2, 64, 64, 48, 70, 0.f, true, {{130, 150}}, {.7f, 3.f}},
    {"fp8, tiles in rings", kBf16, kFp8, 4, 1, 96, 96, 256, 0, 4.f, false, {{840, 40}}, {2.f, .3f}},
    {"wide, tiles", kBf16, kBf16, 4, 1, 256, 256, 16, 0, 0.f, true, {{300, 45}, {0, 17}, {20, 1}}},
    {"wide, tiles, window", kF16, kF16, 2, 2, 256, 256, 48, 70, 5.f, true, {{130, 150}, {0, 33}}},
    {"mma, splits beside prompts",
     kBf16,
     kBf16,
     8,
     1,
     64,
     64,
     16,
     0,
     0.f,
     true,
     {{700, 1}, {0, 45}, {300, 2}, {40, 3}}},
    {"fp8, splits beside prompts",
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
     {{0, 25}, {640, 1}, {517, 4}},
     {.7f, 1.3f}},
    {"prompt parts", kBf16, kBf16, 4, 1, 128, 128, 16, 0, 0.f, true, {{1500, 30}, {0, 5}}},
    {"prompt parts, requests",
     kF16,
     kF16,
     8,
     2,
     64,
     64,
     64,
     0,
     6.f,
     true,
     {{1100, 9}, {0, 60}, {700, 1}, {5, 0}, {1990, 20}}},
    {"prompt parts, fp8", kBf16, kFp8, 4, 1, 128, 128, 16, 0, 0.f, true, {{1200, 20}}, {.6f, 1.3f}},
    {"prompt parts, wide heads", kBf16, kBf16, 3, 1, 256, 256, 16, 0, 0.f, true, {{700, 9}}},
    {"prompt parts, window", kBf16, kBf16, 6, 2, 96, 96, 32, 1100, 0.f, false, {{2100, 30}}},
    {"prompt parts, some empty", kBf16, kBf16, 1, 1, 64, 64, 128, 0, 0.f, false, {{0, 1024}}},
    {"mma, window of splits", kF16, kF16, 2, 2, 64, 64, 16, 600, 0.f, true, {{900, 1}}},
    {"mma, one long context among many short ones", kBf16, kBf16, 3, 1, 64, 64, 16, 0, 0.f, true,
     one_among(134, {1500, 1})},
    {"mma, uneven contexts",
     kBf16,
     kBf16,
     4,
     2,
     64,
     64,
     16,
     0,
     0.f,
     false,
     {{300, 1}, {1100, 2}, {0, 40}, {5, 0}, {255, 1}, {0, 1}, {520, 3}}},
};

// Contexts that the CPU backend cuts into segments.
const std::vector<AttentionCase> kLargeCases = {
    {"several segments",
     kF32,
     kF32,
     2,
     1,
     16,
     16,
     64,
     0,
     0.f,
     true,
     {{2100, 1}, {1020, 10}, {3000, 40}}},
    {"window across segments",
     kF32,
     kF32,
     2,
     1,
     16,
     16,
     64,
     700,
     0.f,
     false,
     {{2100, 1}, {1000, 60}}},
};

struct SharedCase {
  AttentionCase attention;
  std::vector<SharedKeys> shared;
};

std::vector<SharedCase> shared_cases() {
  std::vector<SharedCase> all;
  const auto add = [&](const char* name, DType dtype, std::int64_t heads, std::int64_t kv_heads,
                       std::int64_t dim, std::vector<AttentionRequest> requests) -> SharedCase& {
    AttentionCase c{name, dtype, dtype, heads, kv_heads, dim, dim, 16, 0, 0.f, true, {}};
    c.requests = std::move(requests);
    all.push_back({std::move(c), {}});
    return all.back();
  };
  const auto alike = [](std::size_t count, AttentionRequest request) {
    return std::vector<AttentionRequest>(count, request);
  };
  // So many requests from one on.
  const auto share = [](SharedCase& c, std::int32_t first, std::size_t count, std::int64_t keys) {
    std::vector<std::int32_t> requests(count);
    std::iota(requests.begin(), requests.end(), first);
    c.shared.push_back({requests, keys});
  };
  share(add("one unit", kBf16, 8, 2, 64, alike(5, {300, 1})), 0, 5, 128);
  std::vector<AttentionRequest> long_ones = alike(5, {640, 1});
  long_ones[0].cached = 700;
  long_ones[4].cached = 1400;
  share(add("parts of units", kBf16, 4, 1, 64, long_ones), 0, 5, 640);
  share(add("several units", kBf16, 8, 1, 64, alike(19, {530, 1})), 0, 19, 512);
  std::vector<AttentionRequest> mixed = alike(9, {310, 1});
  mixed[1] = {600, 2}, mixed[2] = {0, 30}, mixed[4] = {520, 4}, mixed[5] = {9, 1};
  mixed[6] = {700, 3}, mixed[7] = {5, 0};
  SharedCase& groups = add("groups, and others between them, and prompts", kF16, 3, 1, 128, mixed);
  groups.attention.block_size = 32;
  groups.shared.push_back({{8, 0, 3}, 256});
  groups.shared.push_back({{6, 1, 4}, 512});
  share(add("drafts across units", kBf16, 4, 1, 64, alike(9, {400, 3})), 0, 9, 384);
  SharedCase& capped = add("capped", kBf16, 6, 2, 96, alike(4, {333, 1}));
  capped.attention.soft_cap = 5.f;
  share(capped, 0, 4, 256);
  SharedCase& wide = add("wide", kBf16, 2, 1, 256, alike(4, {300, 1}));
  wide.attention.sinks = false;
  wide.shared.push_back({{3, 1, 2}, 256});
  SharedCase& fp8 = add("fp8", kBf16, 8, 2, 128, alike(9, {400, 1}));
  fp8.attention.cache_dtype = kFp8;
  fp8.attention.scale = {.7f, 1.3f};
  fp8.shared.push_back({{1, 8, 2, 5}, 384});
  fp8.shared.push_back({{0, 4, 3}, 128});
  share(add("heads of their own", kBf16, 2, 2, 64, alike(70, {270, 1})), 2, 67, 256);
  return all;
}

std::vector<AttentionCase> all_cases() {
  std::vector<AttentionCase> all = kCases;
  all.insert(all.end(), kLargeCases.begin(), kLargeCases.end());
  return all;
}

void check_case(const AttentionCase& c) {
  INFO(c.name);
  const AttentionData data(c, 1);
  const std::vector<double> want = data.reference();
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    check_close(data.run(run), want);
  }
}

}  // namespace

TEST_CASE("paged attention attends to what each position may see", "[ops][attention]") {
  check_case(GENERATE(from_range(kCases)));
}
TEST_CASE("paged attention attends to what each position may see of a long context",
          "[ops][attention][large]") {
  check_case(GENERATE(from_range(kLargeCases)));
}

TEST_CASE("attention gives a query the same bits alone, in a batch, and in chunks",
          "[ops][attention][cpu]") {
  const AttentionCase c = GENERATE(from_range(all_cases()));
  INFO(c.name);
  const AttentionData data(c, 2);
  const std::size_t row = static_cast<std::size_t>(c.heads * c.value_dim) * size_of(c.q_dtype);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const HostTensor together = data.run(run);
    std::size_t token = 0;
    for (std::size_t r = 0; r < c.requests.size(); ++r) {
      for (std::int64_t q = 0; q < c.requests[r].fresh;) {
        const std::int64_t chunk = std::min<std::int64_t>(1 + q % 7, c.requests[r].fresh - q);
        const HostTensor part = data.run_chunk(run, r, q, chunk);
        const auto begin = together.bytes.begin() + static_cast<std::ptrdiff_t>((token)*row);
        REQUIRE(std::equal(part.bytes.begin(), part.bytes.end(), begin));
        token += static_cast<std::size_t>(chunk);
        q += chunk;
      }
    }
  }
}

TEST_CASE("attention sized for longer requests gives the same bits", "[ops][attention][large]") {
  const AttentionCase c = GENERATE(from_range(kCases));
  INFO(c.name);
  const AttentionData data(c, 5);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    CHECK(same_bits(data.run(run, 1 << 14), data.run(run)));
  }
}

// Rows of a mixed step's graph: many have no tokens, the last those that pad it, and any may be as
// long as all of them.
TEST_CASE("attention launched for a graph's rows attends for those that are there",
          "[ops][attention][large]") {
  AttentionCase c = GENERATE(from_range(kCases));
  INFO(c.name);
  c.requests.insert(c.requests.end(), 40, {0, 0});
  c.requests.push_back({0, 21});
  const AttentionData data(c, 6);
  const std::vector<double> want = data.reference();
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    AttentionArgs args = data.arguments(run, 1 << 14);
    args.max_query_len = static_cast<int>(args.q.extent(0));
    run.ops().paged_attention(args, run.stream());
    check_close(run.download(args.out), want);
  }
}

TEST_CASE("what lies in a block past the end is never read into a result", "[ops][attention][unseen]") {
  const AttentionCase c = GENERATE(from_range(kCases));
  const std::vector<std::string> some = {
      "decode of one",       "fp8, mma",     "mma, tiles", "mma, tiles, window",
      "mma, tiles in rings", "prompt parts", "fp8, tiles", "wide, tiles"};
  if (std::find(some.begin(), some.end(), c.name) == some.end()) return;
  AttentionData data(c, 3);
  const std::vector<double> want = data.reference();
  data.poison_unused();
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    check_close(data.run(run), want);
  }
}

// A page that its request has left may be somebody else's.
TEST_CASE("what lies before a window is never read into a result", "[ops][attention][unseen]") {
  const AttentionCase c = GENERATE(from_range(std::vector<AttentionCase>{
      {"prompt", kF16, kF16, 6, 2, 64, 64, 96, 500, 0.f, true, {{900, 70}}},
      {"fp8", kBf16, kFp8, 6, 2, 64, 64, 96, 150, 0.f, true, {{300, 30}}, {.7f, 1.2f}},
      {"wide", kBf16, kBf16, 2, 2, 256, 256, 16, 70, 0.f, true, {{200, 20}}},
      {"decode", kBf16, kBf16, 6, 2, 64, 64, 96, 500, 0.f, true, {{900, 1}, {700, 3}}},
      {"decode, fp8", kBf16, kFp8, 4, 1, 128, 128, 16, 70, 0.f, true, {{200, 2}}, {.7f, 1.2f}}}));
  INFO(c.name);
  AttentionData data(c, 3);
  const std::vector<double> want = data.reference();
  data.poison_unused(/*before_windows=*/true);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    check_close(data.run(run), want);
  }
}

TEST_CASE("a long context is cut among more requests than partial results have room for",
          "[ops][attention][large]") {
  check_case(
      {"many", kBf16, kBf16, 256, 16, 256, 256, 16, 0, 0.f, false, one_among(259, {700, 1})});
}

TEST_CASE("keys that requests share are read once, and all of them are attended to",
          "[ops][attention]") {
  const SharedCase c = GENERATE(from_range(shared_cases()));
  INFO(c.attention.name);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    AttentionData data(c.attention, 7);
    std::int64_t longest = 0;
    for (const SharedKeys& group : c.shared)
      for (const std::int32_t r : group.requests)
        longest = std::max(longest, c.attention.requests[static_cast<std::size_t>(r)].fresh);
    const int most = run.ops().traits().most_sharing_tokens(
        {.group = static_cast<int>(c.attention.heads / c.attention.kv_heads),
         .head_dim = static_cast<int>(c.attention.head_dim),
         .dtype = c.attention.q_dtype,
         .cache = c.attention.cache_dtype});
    CHECK((most > 0) == (backend.name == "cuda" && c.attention.head_dim <= 128));
    data.share(c.shared, longest <= most);
    const HostTensor got = data.run(run);
    check_close(got, data.reference());
    CHECK(same_bits(data.run(run), got));
    CHECK(same_bits(data.run(run, 1 << 14), got));
  }
}

TEST_CASE("windows leave out of shared keys what they hide", "[ops][attention]") {
  AttentionData data({"window", kBf16, kBf16, 4, 2, 64, 64, 16, 200, 0.f, true,
                      std::vector<AttentionRequest>(4, {300, 1})},
                     8);
  data.share({{{0, 1, 2, 3}, 256}}, false);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    check_close(data.run(run), data.reference());
  }
}

TEST_CASE("Scores by pairs of bf16 have an odd width's last one, and join splits",
          "[ops][attention][cpu]") {
  check_case({"odd", kBf16, kBf16, 4, 1, 33, 20, 16, 0, 0.f, false, {{0, 33}, {2500, 1}}});
  check_case({"split", kBf16, kBf16, 8, 2, 64, 64, 16, 0, 0.f, false, {{4200, 1}}});
}

}  // namespace quire::test
