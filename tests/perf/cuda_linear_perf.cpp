// The cases of matrix products in cuda_ops_perf, and our own beside cuBLASLt.

#include <algorithm>

#include "backend/fragment_weights.h"
#include "cuda/expert_scratch.h"
#include "cuda/kernels/fragment_product.h"
#include "cuda/kernels/launchers.h"
#include "tests/perf/cuda_bench.h"

namespace quire::perf {
namespace {

// As many matrices [outs, ins] as one does not find in the L2 cache.
struct Matrices {
  Matrices(Bench& bench, std::int64_t n, std::int64_t k, std::int64_t least = 64)
      : layers(bench.copies(n * k * 2)),
        outs(bench.size(n, least)),
        ins(bench.size(k, least)),
        data(bench.random({layers, outs, ins}, 0.02f)) {}
  // Each of them in turn, as the layers of a model are.
  std::function<void()> body(std::function<void(TensorView weight)> product) const {
    return [*this, product = std::move(product)] {
      for (std::int64_t l = 0; l < layers; ++l) product(data.rows(l, l + 1).reshape({outs, ins}));
    };
  }
  double bytes() const { return static_cast<double>(outs * ins) * 2; }
  Bench::Repeats repeats() const { return {.does = layers}; }

  std::int64_t layers, outs, ins;
  TensorView data;
};

std::string name_of(const char* what, std::int64_t rows, std::int64_t n, std::int64_t k) {
  return what + (", rows " + std::to_string(rows)) + ", " + std::to_string(k) + " to " +
         std::to_string(n);
}

struct PlainLinear {
  PlainLinear(Bench& bench, std::int64_t rows, std::int64_t n, std::int64_t k)
      : bench(bench),
        m(bench, n, k),
        x(bench.random({rows, m.ins})),
        out(bench.zeros(DType::bf16, {rows, m.outs})) {}
  template <class Products>
  std::function<void()> with(Products& products) const {
    return m.body(
        [this, &products](TensorView w) { products.linear(out, x, w, {}, bench.stream()); });
  }

  Bench& bench;
  Matrices m;
  TensorView x, out;
};

void decode_linear(Bench& bench, std::int64_t rows, std::int64_t n, std::int64_t k, double goal) {
  const std::string name = name_of("linear", rows, n, k), ways = "own or cuBLASLt: " + name;
  if (bench.begin(name)) {
    const PlainLinear linear(bench, rows, n, k);
    bench.memory_bound(name, goal, linear.m.bytes(), linear.with(bench.ops()), linear.m.repeats());
  }
  if (!bench.begin_ways(ways)) return;
  const PlainLinear linear(bench, rows, n, k);
  bench.compare(ways,
                {{"chosen", linear.with(bench.ops())},
                 {"cuBLASLt", linear.with(bench.gemm())},
                 {"cuBLASLt, measured", linear.with(bench.chosen_gemm())}},
                linear.m.repeats());
}

// Gates, ups and their activation: in one product, where few rows have it, beside two operators.
void decode_gated_linear(Bench& bench, std::int64_t rows, std::int64_t gates, std::int64_t k) {
  const std::string name = name_of("gated linear", rows, 2 * gates, k);
  const bool compares = bench.begin_ways(name);
  if (!compares && !bench.begin(name)) return;
  const Matrices m(bench, 2 * gates, k);
  const std::int64_t width = m.outs / 2;
  const TensorView x = bench.random({rows, m.ins}), out = bench.zeros(DType::bf16, {rows, width}),
                   both = bench.zeros(DType::bf16, {rows, 2 * width});
  const auto in_one = m.body([&](TensorView weight) {
    bench.ops().fused_linear({.out = out,
                              .x = x,
                              .weight = {.data = weight, .scales = {}},
                              .activation = Activation::silu},
                             bench.stream());
  });
  const auto apart = m.body([&](TensorView weight) {
    bench.ops().linear(both, x, weight, {}, bench.stream());
    bench.ops().gated_activation(out, both, Activation::silu, bench.stream());
  });
  if (compares)
    return bench.compare(name, {{"in the product", in_one}, {"two kernels", apart}}, m.repeats());
  bench.memory_bound(name, 0.90, m.bytes(), in_one, m.repeats());
}

// A norm before a product and a sum behind it: in the product beside operators of their own.
void decode_normed_linear(Bench& bench, std::int64_t rows, std::int64_t n, std::int64_t k) {
  const std::string name = name_of("norm in the linear", rows, n, k);
  const bool compares = bench.begin_ways(name);
  if (!compares && !bench.begin(name)) return;
  const Matrices m(bench, n, k);
  const TensorView x = bench.random({rows, m.ins}), norm = bench.random({m.ins});
  const TensorView stream = bench.zeros(DType::f32, {rows, m.ins}),
                   sum = bench.zeros(DType::f32, {rows, m.outs}),
                   update = bench.zeros(DType::f32, {rows, m.outs}),
                   out = bench.zeros(DType::bf16, {rows, m.outs});
  const auto normed = m.body([&](TensorView weight) {
    bench.ops().fused_linear({.out = out,
                              .x = stream,
                              .weight = {.data = weight, .scales = {}},
                              .norm_weight = norm,
                              .norm_eps = 1e-5f},
                             bench.stream());
  });
  if (!compares) return bench.memory_bound(name, 0, m.bytes(), normed, m.repeats());
  const auto apart = m.body([&](TensorView weight) {
    bench.ops().rms_norm(x, stream, norm, 1e-5f, 0.f, bench.stream());
    bench.ops().linear(out, x, weight, {}, bench.stream());
  });
  bench.compare(name, {{"in the product", normed}, {"two kernels", apart}}, m.repeats());
  const auto added = m.body([&](TensorView weight) {
    bench.ops().fused_linear(
        {.out = sum, .x = x, .weight = {.data = weight, .scales = {}}, .adds = true},
        bench.stream());
  });
  const auto sum_apart = m.body([&](TensorView weight) {
    bench.ops().linear(update, x, weight, {}, bench.stream());
    bench.ops().add(sum, sum, update, bench.stream());
  });
  bench.compare(name_of("sum behind the linear", rows, n, k),
                {{"in the product", added}, {"two kernels", sum_apart}}, m.repeats());
}

// Weights in fp8 with a scale for each block of 128 × 128.
void fp8_linear(Bench& bench, std::int64_t rows, std::int64_t n, std::int64_t k, double goal) {
  const std::string name = name_of("linear, fp8 in blocks", rows, n, k);
  if (!bench.begin(name)) return;
  const std::int64_t layers = bench.copies(n * k), outs = bench.size(n, 128),
                     ins = bench.size(k, 512), tokens = bench.size(rows, rows > 64 ? 40 : rows);
  const TensorView codes = bench.codes(DType::fp8_e4m3, {layers, outs, ins}),
                   scales = bench.filled(1.f, {outs / kFp8Block, ins / kFp8Block}),
                   x = bench.random({tokens, ins}), out = bench.zeros(DType::bf16, {tokens, outs});
  const auto weight_of = [&](std::int64_t layer) {
    return Weight{codes.rows(layer, layer + 1).reshape({outs, ins}), scales,
                  WeightFormat::fp8_blocks};
  };
  const auto bytes = static_cast<std::int64_t>(
      bench.ops().traits().linear_workspace_bytes(tokens, weight_of(0), DType::bf16));
  const TensorView workspace = bench.zeros(DType::u8, {bytes});
  const auto body = [&] {
    for (std::int64_t l = 0; l < layers; ++l)
      bench.ops().quantized_linear(out, x, weight_of(l), {}, workspace, bench.stream());
  };
  const auto elements = static_cast<double>(outs * ins);
  if (rows > 64)
    return bench.compute_bound(name, 2. * static_cast<double>(tokens) * elements, body,
                               {.does = layers});
  bench.memory_bound(name, goal, elements, body, {.does = layers});
}

// Packed integers: warps that share nothing for few rows, tiles of a block for more.
void packed_linear(Bench& bench, const char* format, const GroupFormat& group, std::int64_t rows,
                   std::int64_t n, std::int64_t k) {
  const std::string name = name_of(format, rows, n, k);
  const bool compares = rows <= cuda::kFewRows && bench.begin_ways(name);
  if (!compares && !bench.begin(name)) return;
  const std::int64_t outs = bench.size(n, 64), ins = bench.size(k, 256),
                     tokens = bench.size(rows, rows > 64 ? 40 : rows);
  const std::int64_t row_bytes = fragment_row_bytes(group, ins),
                     layers = bench.copies(fragment_row_bytes(group, k) * n);
  const TensorView data = bench.codes(DType::u8, {layers, outs, row_bytes}),
                   x = bench.random({tokens, ins}), out = bench.zeros(DType::bf16, {tokens, outs});
  const auto weight_of = [&](std::int64_t l) {
    return Weight{.data = data.rows(l, l + 1).reshape({outs, row_bytes}),
                  .scales = {},
                  .format = WeightFormat::fragments,
                  .group = group};
  };
  const auto each = [&](std::function<void(const Weight&)> product) {
    return [layers, weight_of, product = std::move(product)] {
      for (std::int64_t l = 0; l < layers; ++l) product(weight_of(l));
    };
  };
  const auto chosen = each([&](const Weight& weight) {
    bench.ops().quantized_linear(out, x, weight, {}, {}, bench.stream());
  });
  if (compares) {
    const auto tiles = each([&](const Weight& weight) {
      const int size =
          tokens > cuda::kManyTileTokens / 2 ? cuda::kManyTileTokens : cuda::kFewTileTokens;
      const cuda::ExpertPlan plan{.max_tiles = static_cast<int>((tokens + size - 1) / size),
                                  .tile_tokens = size};
      cuda::fragment_mma({.out = out, .x = x, .weight = weight, .bias = {}}, plan, bench.stream());
    });
    return bench.compare(name, {{"few_fragments", chosen}, {"fragment_mma", tiles}},
                         {.does = layers});
  }
  const auto elements = static_cast<double>(outs * ins);
  if (rows > 64)
    return bench.compute_bound(name, 2. * static_cast<double>(tokens) * elements, chosen,
                               {.does = layers});
  bench.memory_bound(name, 0, static_cast<double>(outs * row_bytes), chosen, {.does = layers});
}

// Of every head its own, as latent attention has them.
void head_linear(Bench& bench, std::int64_t tokens) {
  const std::string name = "linear of each of 128 heads, rows " + std::to_string(tokens);
  if (!bench.begin(name)) return;
  const std::int64_t heads = bench.size(128, 2), ins = bench.size(128, 64), outs = 512,
                     rows = bench.size(tokens, 5);
  const TensorView x = bench.random({rows, heads, ins}), weight = bench.random({heads, outs, ins}),
                   out = bench.zeros(DType::bf16, {rows, heads, outs});
  bench.compute_bound(name, 2. * static_cast<double>(rows * heads * ins * outs),
                      [&] { bench.ops().head_linear(out, x, weight, bench.stream()); },
                      {.times = 4});
}

}  // namespace

void linear_cases(Bench& bench) {
  for (const std::int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128}) {
    const double goal = rows <= 16 ? 0.92 : 0;
    decode_linear(bench, rows, 28672, 4096, goal);
    decode_linear(bench, rows, 4096, 4096, goal);
    if (rows > 16) continue;
    decode_linear(bench, rows, 6144, 4096, goal);
    decode_linear(bench, rows, 4096, 14336, goal);
    if (rows <= 8) decode_gated_linear(bench, rows, 14336, 4096);
  }
  // Within what a block norms for itself (cuda/kernels/block_norm.h).
  decode_normed_linear(bench, 1, 28672, 4096);
  for (const std::int64_t rows : {1, 3}) decode_normed_linear(bench, rows, 16384, 2048);
  for (const std::int64_t rows : {1, 6}) decode_normed_linear(bench, rows, 6144, 1024);
  for (const std::int64_t rows : {1, 8, 16, 64, 8192}) {
    fp8_linear(bench, rows, 28672, 4096, rows <= 8 ? 0.88 : 0);
    fp8_linear(bench, rows, 4096, 14336, rows <= 8 ? 0.88 : 0);
  }
  constexpr GroupFormat kFour{.bits = 4, .group = 128, .zero = 8},
      kMinima{.bits = 4, .group = 32, .has_min = true}, kEight{.bits = 8, .group = 32, .zero = 128};
  for (const std::int64_t rows : {1, 8, 16, 32, 64, 8192})
    packed_linear(bench, "linear, 4 bits in groups of 128", kFour, rows, 28672, 4096);
  for (const std::int64_t rows : {1, 8}) {
    packed_linear(bench, "linear, 4 bits with minima of 32", kMinima, rows, 28672, 4096);
    packed_linear(bench, "linear, 8 bits in groups of 32", kEight, rows, 28672, 4096);
  }
  for (const std::int64_t tokens : {1, 32, 4096}) head_linear(bench, tokens);
}

}  // namespace quire::perf
