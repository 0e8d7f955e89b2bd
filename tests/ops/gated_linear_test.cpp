// Gates and what they gate in one product: what a backend does at once, it does as in two steps.

#include <catch2/catch.hpp>

#include "backend/fp8.h"
#include "tests/support/op_test.h"

namespace quire::test {
namespace {

const auto kBf16 = DType::bf16, kF16 = DType::f16;
constexpr auto kPlain = WeightFormat::plain, kRows = WeightFormat::fp8_rows,
               kBlocks = WeightFormat::fp8_blocks;

struct Case {
  const char* name;
  WeightFormat format;
  DType dtype;
  std::int64_t m, gates, k;
  Activation activation = Activation::silu;
};

std::int64_t blocks_of(std::int64_t n) { return (n + kFp8Block - 1) / kFp8Block; }

// [2 · gates, k] in the case's format, as every backend is given it.
struct GatedWeight {
  HostTensor data, scales;

  GatedWeight(std::mt19937& rng, const Case& c)
      : data(random_tensor(rng, c.dtype, {2 * c.gates, c.k},
                           1.f / std::sqrt(static_cast<float>(c.k)))) {
    if (c.format == kPlain) return;
    HostTensor codes(DType::fp8_e4m3, data.extents);
    std::normal_distribution<float> normal(0.f, 100.f);
    for (std::int64_t i = 0; i < codes.numel(); ++i)
      codes.as<fp8_e4m3>()[i] = fp8_e4m3(normal(rng));
    data = codes;
    scales = c.format == kRows ? HostTensor(DType::f32, {2 * c.gates})
                               : HostTensor(DType::f32, {blocks_of(2 * c.gates), blocks_of(c.k)});
    const float size = 0.01f / std::sqrt(static_cast<float>(c.k));
    std::uniform_real_distribution<float> uniform(0.2f * size, 2.f * size);
    for (std::int64_t i = 0; i < scales.numel(); ++i) scales.set(i, uniform(rng));
  }
  Weight upload(OpRun& run, WeightFormat format) const {
    if (format == kPlain) return {.data = run.upload_constant(data), .scales = {}};
    return {run.upload_constant(data), run.upload(scales), format};
  }
};

// The same by the two operators.
HostTensor in_two_steps(OpRun& run, const Case& c, const Weight& weight, TensorView x) {
  const TensorView both = run.output(c.dtype, {c.m, 2 * c.gates});
  if (c.format == kPlain) {
    run.ops().linear(both, x, weight.data, {}, run.stream());
  } else {
    const auto bytes = run.ops().traits().linear_workspace_bytes(c.m, weight, c.dtype);
    const auto size = std::max<std::int64_t>(static_cast<std::int64_t>(bytes), 1);
    run.ops().quantized_linear(both, x, weight, {}, run.output(DType::u8, {size}), run.stream());
  }
  const TensorView out = run.output(c.dtype, {c.m, c.gates});
  run.ops().gated_activation(out, both, c.activation, run.stream());
  return run.download(out);
}

}  // namespace

TEST_CASE("gated_linear is a product and its activation", "[ops][linear]") {
  const auto c = GENERATE(values<Case>({
      {"one row", kPlain, kBf16, 1, 64, 256},
      {"gates that fill no block of rows", kPlain, kBf16, 3, 37, 520},
      {"eight rows, f16, gelu", kPlain, kF16, 8, 19, 1032, Activation::gelu_tanh},
      {"one gate", kPlain, kBf16, 5, 1, 2304},
      {"clamped", kPlain, kBf16, 2, 24, 64, Activation::clamped_swiglu},
      {"fp8 rows", kRows, kBf16, 4, 37, 272},
      {"fp8 blocks", kBlocks, kBf16, 1, 192, 320},
      {"fp8 blocks, gates that end within one", kBlocks, kF16, 7, 72, 640},
  }));
  INFO(c.name);
  std::mt19937 rng(11);
  const HostTensor x = random_tensor(rng, c.dtype, {c.m, c.k});
  const GatedWeight weight(rng, c);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView xs = run.upload(x);
    const Weight w = weight.upload(run, c.format);
    const HostTensor steps = in_two_steps(run, c, w, xs);
    const TensorView all = run.output(c.dtype, {c.m + 1, c.gates + 3});
    const TensorView out = all.rows(0, c.m).narrow(1, 2, c.gates + 2);
    const bool is_here = run.ops().gated_linear(out, xs, w, c.activation, run.stream());
    CHECK(is_here == (backend.name == "cuda"));
    if (!is_here) continue;
    const HostTensor got = run.download(all);
    HostTensor part(c.dtype, {c.m, c.gates});
    for (std::int64_t i = 0; i < part.numel(); ++i)
      part.set(i, got.at(i / c.gates * (c.gates + 3) + 2 + i % c.gates));
    CHECK(part.values() == steps.values());  // the same products, summed and rounded alike
    for (std::int64_t row = 0; row <= c.m; ++row)
      CHECK(std::isnan(got.at(row * (c.gates + 3) + 1)));
    CHECK(std::isnan(got.at(c.m * (c.gates + 3) + 2)));
  }
}

TEST_CASE("gated_linear leaves to others what it does not do", "[ops][linear]") {
  std::mt19937 rng(12);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const auto does = [&](DType dtype, std::int64_t m, std::int64_t gates, std::int64_t k) {
      const TensorView out = run.output(dtype, {m, gates});
      const Weight w{.data = run.upload_constant(random_tensor(rng, dtype, {2 * gates, k})),
                     .scales = {}};
      const bool done = run.ops().gated_linear(out, run.upload(random_tensor(rng, dtype, {m, k})),
                                               w, Activation::silu, run.stream());
      CHECK((done || std::isnan(run.download(out).at(0))));
      return done;
    };
    CHECK_FALSE(does(kBf16, 9, 8, 64));       // too many rows
    CHECK_FALSE(does(DType::f32, 1, 8, 64));  // not on tensor cores
    CHECK_FALSE(does(kBf16, 1, 8, 60));       // rows that are no whole vectors
  }
}

}  // namespace quire::test
