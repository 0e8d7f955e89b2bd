// Latent attention of prompts, expanded: against a plain loop from the cache's rows, and against
// itself where prompts are cut.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/support/op_test.h"

namespace quire::test {
namespace {

const auto kF32 = DType::f32, kBf16 = DType::bf16, kF16 = DType::f16, kFp8 = DType::fp8_e4m3;

// Of a request's tokens those that the case computes: the last `fresh` of them.
struct Request {
  int cached, fresh;
  bool expanded = true;
  int believed = 0;  // drafts that did not hold: so many more are cached as the host knows it
};

struct Case {
  const char* name;
  DType dtype, cache_dtype;
  LatentShape shape;
  std::int64_t block_size;
  std::vector<Request> requests;
  float cache_scale = 1.f;
};

constexpr LatentShape kTiny{.heads = 3, .latent = 32, .rope = 8, .nope = 16, .value = 12};
constexpr LatentShape kPublished{.heads = 2, .latent = 512, .rope = 64, .nope = 128, .value = 128};
constexpr LatentShape kOneHead{.heads = 1, .latent = 512, .rope = 64, .nope = 128, .value = 128};
// The least that CUDA expands, for cases of many positions.
constexpr LatentShape kNarrow{.heads = 1, .latent = 64, .rope = 64, .nope = 128, .value = 128};
// As a rotated part wider than a tile, and widths that are no multiple of a register.
constexpr LatentShape kOdd{.heads = 2, .latent = 20, .rope = 6, .nope = 7, .value = 9};

std::vector<Case> all_cases() {
  const std::vector<Request> many(70, {1, 2});
  return {
      {"a prompt", kF32, kF32, kTiny, 16, {{0, 50}}},
      {"prompts beside others",
       kF32,
       kF32,
       kTiny,
       16,
       {{9, 1, false}, {0, 40}, {0, 3}, {60, 70}, {5, 2, false}, {7, 30}}},
      {"bf16", kBf16, kBf16, kTiny, 16, {{0, 50}, {77, 60}}},
      {"as models have it", kBf16, kBf16, kPublished, 16, {{0, 65}, {30, 50}}},
      {"as models have it, f16", kF16, kF16, kPublished, 32, {{40, 49}}},
      {"as models have it, f32", kF32, kF32, kPublished, 16, {{20, 30}}},
      {"odd widths", kF32, kF32, kOdd, 16, {{0, 20}, {33, 49}}},
      {"another cache", kF32, kBf16, kTiny, 8, {{30, 40}, {0, 9}}},
      {"fp8", kF32, kFp8, kTiny, 16, {{30, 40}, {0, 9}}, .7f},
      {"fp8, bf16", kBf16, kFp8, kTiny, 16, {{30, 40}, {0, 9}}, .7f},
      {"fp8, f16", kF16, kFp8, kTiny, 16, {{30, 40}, {0, 9}}, 1.3f},
      {"as many as a piece has, and one more",
       kF32,
       kF32,
       kTiny,
       16,
       {{1000, 24}, {1000, 25}, {0, 1024}, {1020, 4}}},
      {"several pieces", kF32, kF32, kTiny, 16, {{2500, 60}, {0, 40}, {1023, 1100}, {3, 5}}},
      {"several pieces, bf16", kBf16, kBf16, kTiny, 16, {{1000, 100}, {20, 40}, {2100, 5}}},
      {"several pieces, fp8", kBf16, kFp8, kTiny, 16, {{1000, 100}, {20, 40}}, .8f},
      {"heads that a thread shares",
       kF32,
       kF32,
       {.heads = 40, .latent = 16, .rope = 4, .nope = 8, .value = 8},
       16,
       {{0, 5}, {9, 17}}},
      {"as models have it, beside others",
       kBf16,
       kBf16,
       kPublished,
       16,
       {{9, 1, false}, {0, 40}, {0, 3}, {60, 170}, {5, 2, false}, {7, 30}}},
      {"as models have it, fp8", kBf16, kFp8, kPublished, 32, {{30, 40}, {0, 9}}, .7f},
      {"as models have it, fp8, f16", kF16, kFp8, kOneHead, 16, {{30, 40}, {0, 9}}, 1.3f},
      {"few behind many", kBf16, kBf16, kOneHead, 64, {{1500, 40}, {700, 20}}},
      {"drafts that did not hold",
       kBf16,
       kBf16,
       kNarrow,
       16,
       {{2, 20, true, 5}, {140, 130, true, 9}}},
      {"more than a round takes", kBf16, kBf16, kNarrow, 8, many},
      {"over the end of a piece", kBf16, kBf16, kNarrow, 64, {{4090, 10}, {0, 5}}},
  };
}

// Of pieces as CUDA has them.
std::vector<Case> large_cases() {
  return {
      {"several pieces", kBf16, kBf16, kNarrow, 64, {{3096, 2000}, {0, 5}, {4090, 6}}},
      {"several pieces, fp8", kF16, kFp8, kNarrow, 64, {{8190, 20}}, .8f},
  };
}

class Data {
 public:
  Data(const Case& c, unsigned seed) : c_(c), rng_(seed) {
    c_.shape.dtype = c.dtype;
    std::int64_t blocks = 1, tokens = 0;
    for (const Request& r : c_.requests) {
      starts_.push_back(static_cast<std::int32_t>(tokens));
      lens_.push_back(r.cached + r.fresh);
      tokens += r.fresh;
      blocks += blocks_of(r);
      columns_ = std::max(columns_, blocks_of(r));
    }
    starts_.push_back(static_cast<std::int32_t>(tokens));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(blocks));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), rng_);
    table_.resize(c_.requests.size() * static_cast<std::size_t>(columns_));
    for (std::size_t r = 0, next = 0; r < c_.requests.size(); ++r)
      for (std::int64_t b = 0; b < blocks_of(c_.requests[r]); ++b)
        table_[r * static_cast<std::size_t>(columns_) + static_cast<std::size_t>(b)] = ids[next++];
    const LatentShape& s = c_.shape;
    q_ = random_tensor(rng_, c_.dtype, {tokens, s.heads, s.nope + s.rope});
    cache_ = random_tensor(rng_, c_.cache_dtype, {blocks, c_.block_size, s.latent + s.rope});
    up_ = random_tensor(rng_, c_.dtype, {s.heads, s.nope + s.value, s.latent},
                        1.f / std::sqrt(static_cast<float>(s.latent)));
  }

  // Slots that no position uses become NaN.
  void poison_unused() {
    std::vector<bool> used(static_cast<std::size_t>(cache_.extents[0] * c_.block_size));
    for (std::size_t r = 0; r < c_.requests.size(); ++r)
      for (std::int64_t p = 0; p < lens_[r]; ++p) used[static_cast<std::size_t>(slot(r, p))] = true;
    const std::int64_t width = cache_.extents[2];
    for (std::size_t s = 0; s < used.size(); ++s)
      for (std::int64_t i = 0; !used[s] && i < width; ++i)
        cache_.set(static_cast<std::int64_t>(s) * width + i, NAN);
  }

  // [tokens, heads, value]; of who is not expanded NaN, as OpRun's outputs are before.
  std::vector<double> reference() const {
    const LatentShape& s = c_.shape;
    std::vector<double> out;
    for (std::size_t r = 0; r < c_.requests.size(); ++r) {
      const Request& request = c_.requests[r];
      if (!request.expanded) {
        out.insert(out.end(), static_cast<std::size_t>(request.fresh * s.heads * s.value), NAN);
        continue;
      }
      const std::vector<double> keys = expanded(r, 0, s.nope),
                                values = expanded(r, s.nope, s.value);
      for (int q = 0; q < request.fresh; ++q)
        for (std::int64_t h = 0; h < s.heads; ++h)
          attend(r, starts_[r] + q, request.cached + q, h, keys, values, out);
    }
    return out;
  }

  struct Chunk {
    std::size_t request;
    std::int32_t begin, count;  // of its fresh tokens
  };
  HostTensor run(OpRun& run) const {
    std::vector<Chunk> chunks;
    for (std::size_t r = 0; r < c_.requests.size(); ++r)
      chunks.push_back({r, 0, c_.requests[r].fresh});
    return run_chunks(run, chunks);
  }

  // A step of these tokens alone.
  HostTensor run_chunks(OpRun& run, const std::vector<Chunk>& chunks) const {
    const LatentShape& s = c_.shape;
    const std::int64_t row = s.heads * (s.nope + s.rope);
    std::vector<std::int32_t> starts = {0}, lens, table;
    std::vector<LatentPrompt> prompts;
    for (const Chunk& chunk : chunks) {
      const Request& request = c_.requests[chunk.request];
      const std::int32_t cached = request.cached + chunk.begin;
      if (request.expanded)
        prompts.push_back({static_cast<std::int32_t>(lens.size()), starts.back(), chunk.count,
                           cached + request.believed});
      starts.push_back(starts.back() + chunk.count);
      lens.push_back(cached + chunk.count);
      const auto from = table_.begin() + static_cast<std::ptrdiff_t>(chunk.request) * columns_;
      table.insert(table.end(), from, from + columns_);
    }
    HostTensor q(c_.dtype, {starts.back(), s.heads, s.nope + s.rope});
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const std::int64_t first = starts_[chunks[i].request] + chunks[i].begin;
      for (std::int64_t e = 0; e < chunks[i].count * row; ++e)
        q.set(starts[i] * row + e, q_.at(first * row + e));
    }
    const std::size_t bytes = run.ops().traits().latent_prompt_bytes(starts.back(), c_.shape);
    MlaPromptArgs args;
    args.out = run.output(c_.dtype, {starts.back(), s.heads, s.value});
    args.q = run.upload(q);
    args.up = run.upload_constant(up_);
    args.cache = run.upload(cache_);
    args.block_table =
        run.upload(tensor_of(table, {static_cast<std::int64_t>(lens.size()), columns_}));
    args.query_start = run.upload(tensor_of(starts));
    args.seq_lens = run.upload(tensor_of(lens));
    args.prompts = prompts;
    args.workspace = run.output(DType::u8, {static_cast<std::int64_t>(bytes)});
    args.cache_scale = c_.cache_scale;
    args.scale = scale();
    run.ops().mla_prompt_attention(args, run.stream());
    return run.download(args.out);
  }

  const LatentShape& shape() const { return c_.shape; }

 private:
  std::int64_t blocks_of(const Request& r) const {
    return (r.cached + r.believed + r.fresh + c_.block_size - 1) / c_.block_size;
  }
  float scale() const { return 1.f / std::sqrt(static_cast<float>(c_.shape.nope + c_.shape.rope)); }
  std::int64_t slot(std::size_t request, std::int64_t position) const {
    const std::size_t at = request * static_cast<std::size_t>(columns_) +
                           static_cast<std::size_t>(position / c_.block_size);
    return table_[at] * c_.block_size + position % c_.block_size;
  }
  double latent(std::size_t request, std::int64_t position, std::int64_t i) const {
    return static_cast<double>(cache_.at(slot(request, position) * cache_.extents[2] + i)) *
           c_.cache_scale;
  }

  // [positions, heads, count] by rows [first, first + count) of each head's matrix.
  std::vector<double> expanded(std::size_t request, std::int64_t first, std::int64_t count) const {
    const LatentShape& s = c_.shape;
    std::vector<double> out;
    std::vector<double> latents(static_cast<std::size_t>(s.latent));
    for (std::int64_t p = 0; p < lens_[request]; ++p) {
      for (std::int64_t i = 0; i < s.latent; ++i)
        latents[static_cast<std::size_t>(i)] = latent(request, p, i);
      for (std::int64_t h = 0; h < s.heads; ++h) {
        for (std::int64_t n = first; n < first + count; ++n) {
          double sum = 0;
          const std::int64_t row = (h * (s.nope + s.value) + n) * s.latent;
          for (std::int64_t i = 0; i < s.latent; ++i)
            sum += up_.at(row + i) * latents[static_cast<std::size_t>(i)];
          out.push_back(sum);
        }
      }
    }
    return out;
  }

  void attend(std::size_t request, std::int64_t token, std::int64_t position, std::int64_t head,
              const std::vector<double>& keys, const std::vector<double>& values,
              std::vector<double>& out) const {
    const LatentShape& s = c_.shape;
    const std::int64_t query = (token * s.heads + head) * (s.nope + s.rope);
    std::vector<double> sum(static_cast<std::size_t>(s.value));
    double total = 0;
    for (std::int64_t p = 0; p <= position; ++p) {
      double dot = 0;
      for (std::int64_t i = 0; i < s.nope; ++i)
        dot += q_.at(query + i) * keys[static_cast<std::size_t>((p * s.heads + head) * s.nope + i)];
      for (std::int64_t i = 0; i < s.rope; ++i)
        dot += q_.at(query + s.nope + i) * latent(request, p, s.latent + i);
      const double weight = std::exp(dot * scale());
      total += weight;
      for (std::int64_t i = 0; i < s.value; ++i)
        sum[static_cast<std::size_t>(i)] +=
            weight * values[static_cast<std::size_t>((p * s.heads + head) * s.value + i)];
    }
    for (const double x : sum) out.push_back(x / total);
  }

  Case c_;
  std::mt19937 rng_;
  std::int64_t columns_ = 0;
  std::vector<std::int32_t> table_, starts_, lens_;
  HostTensor q_, cache_, up_;
};

bool has_prompts(OpBackend& backend, const Data& data) {
  return backend.ops->traits().latent_prompt_bytes(1, data.shape()) > 0;
}

// Of tokens that are not expanded nothing is written: they stay NaN.
void check_written(const HostTensor& got, std::vector<double> want) {
  HostTensor of_prompts = got;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!std::isnan(want[i])) continue;
    REQUIRE(std::isnan(got.at(static_cast<std::int64_t>(i))));
    of_prompts.set(static_cast<std::int64_t>(i), 0.f);
    want[i] = 0;
  }
  check_close(of_prompts, want);
}

}  // namespace

void check_case(const Case& c) {
  INFO(c.name);
  Data data(c, 1);
  data.poison_unused();
  const std::vector<double> want = data.reference();
  for (OpBackend& backend : op_backends()) {
    if (!has_prompts(backend, data)) continue;
    INFO(backend.name);
    OpRun run(backend);
    check_written(data.run(run), want);
  }
}

TEST_CASE("expanded latent attention attends with each head's own keys and values",
          "[ops][attention][mla]") {
  check_case(GENERATE(from_range(all_cases())));
}

TEST_CASE("expanded latent attention goes on where a piece ended", "[ops][attention][mla][large]") {
  check_case(GENERATE(from_range(large_cases())));
}

TEST_CASE("expanded latent attention gives a token the same bits alone, in a batch, and in chunks",
          "[ops][attention][mla][cpu]") {
  const Case c = GENERATE(from_range(all_cases()));
  INFO(c.name);
  const Data data(c, 2);
  const std::size_t row =
      static_cast<std::size_t>(c.shape.heads * c.shape.value) * size_of(c.dtype);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const HostTensor together = data.run(run);
    std::size_t token = 0;
    for (std::size_t r = 0; r < c.requests.size(); ++r) {
      for (std::int32_t q = 0; q < c.requests[r].fresh;) {
        const std::int32_t count = std::min(1 + (q * 5 + 40) % 230, c.requests[r].fresh - q);
        const HostTensor part = data.run_chunks(run, {{r, q, count}});
        const auto begin = together.bytes.begin() + static_cast<std::ptrdiff_t>(token * row);
        REQUIRE(std::equal(part.bytes.begin(), part.bytes.end(), begin));
        token += static_cast<std::size_t>(count);
        q += count;
      }
    }
  }
}

TEST_CASE("prompts are expanded where that takes fewer multiplications", "[ops][mla]") {
  LatentShape v3 = kPublished;
  v3.heads = 128;
  const auto expands = [&](std::int64_t num_new, std::int64_t num_cached) {
    return takes_less_expanded(v3, num_new, num_cached);
  };
  CHECK(expands(4096, 0));
  CHECK(expands(512, 7680));
  CHECK(expands(171, 100000));
  CHECK_FALSE(expands(170, 100000));
  CHECK_FALSE(expands(1, 1));
  CHECK_FALSE(expands(1, 4096));
  CHECK_FALSE(expands(16, 1));  // a token and its drafts
  CHECK(expands(18, 1));
  CHECK_FALSE(expands(0, 0));
  // Where latents are narrower than what they become there is nothing to save.
  CHECK_FALSE(
      takes_less_expanded({.heads = 1, .latent = 16, .rope = 8, .nope = 16, .value = 16}, 1000, 0));
  // By count, as the formula has it.
  for (const std::int64_t n : {1, 7, 100, 171, 172, 1000})
    for (const std::int64_t c : {0, 1, 50, 5000}) {
      const std::int64_t pairs = n * c + n * (n + 1) / 2;
      CHECK(expands(n, c) == (pairs * 320 + (n + c) * 131072 < pairs * 1088 + n * 131072));
    }
  // As CUDA has it.
  const auto by_units = [&](std::int64_t num_new, std::int64_t num_cached) {
    return takes_less_expanded(v3, num_new, num_cached, {.unit_tokens = 128, .times = 1.35});
  };
  CHECK(by_units(51, 0));
  CHECK_FALSE(by_units(50, 0));
  CHECK(by_units(316, 100'000'000));
  CHECK_FALSE(by_units(315, 100'000'000));
  CHECK_FALSE(by_units(0, 0));
}

}  // namespace quire::test
