// prepare_heads against the operators that it stands for, one after the other, on the same backend.

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/op_test.h"

namespace quire::test {
namespace {

struct HeadCase {
  std::string name;
  DType dtype, cache;
  std::int64_t tokens, heads, kv_heads, dim, rotary;  // rotary 0: none
  RopeStyle style = RopeStyle::halves;
  bool norms = false;
  std::int64_t gap = 0;  // elements between queries and keys of a token
};

const std::vector<HeadCase> kCases = {
    {"Llama", DType::bf16, DType::bf16, 5, 8, 2, 128, 128},
    {"Qwen3", DType::bf16, DType::bf16, 3, 4, 2, 128, 128, RopeStyle::halves, true},
    {"a part rotates", DType::bf16, DType::bf16, 4, 2, 1, 256, 64, RopeStyle::halves, true},
    {"heads of 96", DType::f16, DType::f16, 4, 3, 3, 96, 96, RopeStyle::halves, true},
    {"neighbours", DType::f32, DType::f32, 4, 2, 1, 64, 32, RopeStyle::interleaved},
    {"no rotation", DType::bf16, DType::bf16, 4, 2, 2, 64, 0, RopeStyle::halves, true},
    {"nothing but writes", DType::bf16, DType::bf16, 4, 2, 2, 64, 0},
    {"fp8 cache", DType::bf16, DType::fp8_e4m3, 4, 4, 2, 64, 64, RopeStyle::halves, true},
    {"small heads", DType::bf16, DType::bf16, 6, 6, 2, 16, 16, RopeStyle::halves, true},
    {"odd heads", DType::f32, DType::f32, 4, 2, 2, 20, 12},
    {"rows that are not aligned", DType::bf16, DType::bf16, 4, 2, 2, 32, 32, RopeStyle::halves,
     true, 4},
    {"all of a warp", DType::bf16, DType::bf16, 2, 2, 1, 512, 512, RopeStyle::halves, true},
};

HostTensor angles(std::int64_t positions, std::int64_t rotary) {
  HostTensor table(DType::f32, {positions, rotary});
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < rotary / 2; ++i) {
      const double angle = static_cast<double>(p) * std::pow(10000., -2. * i / rotary);
      table.set(p * rotary + i, static_cast<float>(std::cos(angle)));
      table.set(p * rotary + rotary / 2 + i, static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

struct HeadData {
  HostTensor qkv, q_norm, k_norm, table, cache;
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> slots;
};

constexpr std::int64_t kBlocks = 3, kBlockSize = 16;

HeadData data_of(const HeadCase& c) {
  std::mt19937 rng(11);
  const std::int64_t row = (c.heads + 2 * c.kv_heads) * c.dim + c.gap;
  HeadData d{random_tensor(rng, c.dtype, {c.tokens, row}),
             random_tensor(rng, c.dtype, {c.dim}, 0.3f, 1.f),
             random_tensor(rng, c.dtype, {c.dim}, 0.3f, 1.f),
             angles(64, c.rotary),
             random_tensor(rng, DType::f32, {kBlocks, 2 * kBlockSize * c.kv_heads * c.dim}),
             {},
             {}};
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    d.positions.push_back(static_cast<std::int32_t>((7 * t) % 64));
    d.slots.push_back(t == 1 ? -1 : (13 * t + 5) % (kBlocks * kBlockSize));
  }
  return d;
}

struct Placed {
  HeadArgs args;
  TensorView pages;
};

// K and V of a block side by side, as in a page.
Placed place(OpRun& run, const HeadCase& c, const HeadData& d) {
  const TensorView qkv = run.upload(d.qkv);
  const std::int64_t queries = c.heads * c.dim, keys = c.kv_heads * c.dim;
  const auto part = [&](std::int64_t at, std::int64_t width) {
    return qkv.narrow(1, at, at + width).split_last(c.dim);
  };
  Placed placed;
  HeadArgs& args = placed.args;
  args.q = part(0, queries);
  args.k = part(queries + c.gap, keys);
  args.v = part(queries + c.gap + keys, keys);
  if (c.norms) {
    args.q_norm = run.upload_constant(d.q_norm);
    args.k_norm = run.upload_constant(d.k_norm);
    args.norm_eps = 1e-6f;
    args.norm_offset = 0.25f;
  }
  args.positions = run.upload(tensor_of(d.positions));
  if (c.rotary > 0) args.cos_sin = run.upload(d.table);
  args.style = c.style;
  const std::int64_t plane = kBlockSize * keys;
  placed.pages = run.output(c.cache, {kBlocks, 2 * plane});
  run.ops().zero_blocks(
      TensorView(placed.pages.data(), DType::u8,
                 {kBlocks, 2 * plane * static_cast<std::int64_t>(size_of(c.cache))}),
      run.upload(tensor_of<std::int32_t>({0, 1, 2})), run.stream());
  const auto cache = [&](std::int64_t at) {
    return TensorView(placed.pages.narrow(1, at * plane, (at + 1) * plane).data(), c.cache,
                      {kBlocks, kBlockSize, c.kv_heads, c.dim})
        .with_strides({2 * plane, keys, c.dim, 1});
  };
  args.k_cache = cache(0);
  args.v_cache = cache(1);
  args.slots = run.upload(tensor_of(d.slots));
  if (c.cache == DType::fp8_e4m3) args.cache_scale = {0.05f, 0.03f};
  return placed;
}

void one_after_the_other(OpRun& run, const HeadArgs& args) {
  if (!args.q_norm.empty()) {
    run.ops().rms_norm(args.q, args.q, args.q_norm, args.norm_eps, args.norm_offset, run.stream());
    run.ops().rms_norm(args.k, args.k, args.k_norm, args.norm_eps, args.norm_offset, run.stream());
  }
  if (!args.cos_sin.empty()) {
    run.ops().rope(args.q, args.positions, args.cos_sin, args.style, run.stream());
    run.ops().rope(args.k, args.positions, args.cos_sin, args.style, run.stream());
  }
  run.ops().kv_write(args.k_cache, args.v_cache, args.k, args.v, args.slots, args.cache_scale,
                     run.stream());
}

HostTensor queries_of(OpRun& run, const HeadCase& c, TensorView q) {
  const TensorView dense = run.output(c.dtype, {c.tokens, c.heads, c.dim});
  run.ops().copy(dense, q, run.stream());
  return run.download(dense);
}

TEST_CASE("prepare_heads is norm, rotation and cache write in one", "[ops][heads]") {
  const HeadCase c = GENERATE(from_range(kCases));
  const HeadData data = data_of(c);
  for (OpBackend& backend : op_backends()) {
    INFO(c.name << " on " << backend.name);
    OpRun run(backend);
    const Placed want = place(run, c, data), got = place(run, c, data);
    one_after_the_other(run, want.args);
    run.ops().prepare_heads(got.args, run.stream());
    check_close(queries_of(run, c, got.args.q), queries_of(run, c, want.args.q).values());
    // A sum in another order may round to the neighbouring code.
    const Tolerance tolerance =
        c.cache == DType::fp8_e4m3 ? Tolerance{0.02, 0.13} : tolerance_of(c.cache);
    check_close(run.download(got.pages), run.download(want.pages).values(), tolerance);
  }
}

}  // namespace
}  // namespace quire::test
