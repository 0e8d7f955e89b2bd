// A product with what lies on either side of it: what a backend does at once has the bits that its
// operators give one after the other.

#include <catch2/catch.hpp>

#include "backend/fp8.h"
#include "tests/support/op_test.h"

namespace quire::test {
namespace {

const auto kBf16 = DType::bf16, kF16 = DType::f16;
constexpr auto kPlain = WeightFormat::plain, kRows = WeightFormat::fp8_rows,
               kBlocks = WeightFormat::fp8_blocks;
constexpr float kEps = 1e-5f, kOffset = 1.f;

struct Case {
  const char* name;
  WeightFormat format;
  DType dtype;
  std::int64_t m, n, k;  // n of the weight
  bool normed = false, adds = false, has_bias = false;
  std::optional<Activation> activation = {};

  std::int64_t outputs() const { return activation ? n / 2 : n; }
  DType out() const { return adds ? DType::f32 : dtype; }
  // As models load it: beside fp8 the bias of f32 outputs is bf16.
  DType bias() const { return adds && format != kPlain ? DType::bf16 : out(); }
};

std::int64_t blocks_of(std::int64_t n) { return (n + kFp8Block - 1) / kFp8Block; }

// [n, k] in the case's format, as every backend is given it.
struct FusedWeight {
  HostTensor data, scales;

  FusedWeight(std::mt19937& rng, const Case& c)
      : data(random_tensor(rng, c.dtype, {c.n, c.k}, 1.f / std::sqrt(static_cast<float>(c.k)))) {
    if (c.format == kPlain) return;
    HostTensor codes(DType::fp8_e4m3, data.extents);
    std::normal_distribution<float> normal(0.f, 100.f);
    for (std::int64_t i = 0; i < codes.numel(); ++i)
      codes.as<fp8_e4m3>()[i] = fp8_e4m3(normal(rng));
    data = codes;
    scales = c.format == kRows ? HostTensor(DType::f32, {c.n})
                               : HostTensor(DType::f32, {blocks_of(c.n), blocks_of(c.k)});
    const float size = 0.01f / std::sqrt(static_cast<float>(c.k));
    std::uniform_real_distribution<float> uniform(0.2f * size, 2.f * size);
    for (std::int64_t i = 0; i < scales.numel(); ++i) scales.set(i, uniform(rng));
  }
  Weight upload(OpRun& run, WeightFormat format) const {
    if (format == kPlain) return {.data = run.upload_constant(data), .scales = {}};
    return {run.upload_constant(data), run.upload(scales), format};
  }
  double at(const Case& c, std::int64_t row, std::int64_t column) const {
    const std::int64_t i = row * c.k + column;
    if (c.format == kPlain) return data.at(i);
    const auto code = static_cast<float>(data.as<fp8_e4m3>()[i]);
    const std::int64_t scale =
        c.format == kRows ? row : row / kFp8Block * blocks_of(c.k) + column / kFp8Block;
    return double{code} * scales.at(scale);
  }
};

// What a case reads besides the weight.
struct FusedInputs {
  HostTensor x, norm_weight, bias, before;

  FusedInputs(std::mt19937& rng, const Case& c)
      : x(random_tensor(rng, c.normed ? DType::f32 : c.dtype, {c.m, c.k}, c.normed ? 3.f : 1.f)),
        norm_weight(random_tensor(rng, c.dtype, {c.k}, 0.3f, 1.f - kOffset)),
        bias(random_tensor(rng, c.bias(), {c.n})),
        before(random_tensor(rng, c.out(), {c.m, c.outputs()})) {}
};

// The same by operators of their own; `x` takes the rows that are multiplied.
HostTensor in_steps(OpRun& run, const Case& c, FusedLinearArgs args, HostTensor& x) {
  if (c.normed) {
    const TensorView normed = run.output(c.dtype, {c.m, c.k});
    run.ops().rms_norm(normed, args.x, args.norm_weight, kEps, kOffset, run.stream());
    args.x = normed;
  }
  x = run.download(args.x);
  const TensorView product = run.output(c.out(), {c.m, c.n});
  if (c.format == kPlain) {
    run.ops().linear(product, args.x, args.weight.data, args.bias, run.stream());
  } else {
    const auto bytes = run.ops().traits().linear_workspace_bytes(c.m, args.weight, c.dtype);
    const auto size = std::max<std::int64_t>(static_cast<std::int64_t>(bytes), 1);
    run.ops().quantized_linear(product, args.x, args.weight, args.bias,
                               run.output(DType::u8, {size}), run.stream());
  }
  if (c.adds) {
    const TensorView sum = run.output(c.out(), {c.m, c.n});
    run.ops().copy(sum, args.out, run.stream());
    run.ops().add(sum, sum, product, run.stream());
    return run.download(sum);
  }
  if (!c.activation) return run.download(product);
  const TensorView out = run.output(c.dtype, {c.m, c.outputs()});
  run.ops().gated_activation(out, product, *c.activation, run.stream());
  return run.download(out);
}

// A plain loop over the rows that are multiplied.
std::vector<double> plain_loop(const Case& c, const FusedWeight& weight, const FusedInputs& in,
                               const HostTensor& x) {
  std::vector<double> out;
  for (std::int64_t t = 0; t < c.m; ++t) {
    for (std::int64_t n = 0; n < c.n; ++n) {
      double sum = c.has_bias ? in.bias.at(n) : 0.;
      for (std::int64_t k = 0; k < c.k; ++k) sum += double{x.at(t * c.k + k)} * weight.at(c, n, k);
      out.push_back(c.adds ? in.before.at(t * c.n + n) + sum : sum);
    }
  }
  return out;
}

}  // namespace

TEST_CASE("fused_linear is a product and what lies on either side of it", "[ops][linear]") {
  constexpr bool kNormed = true, kAdds = true, kBias = true;
  const auto silu = Activation::silu;
  const auto c = GENERATE_COPY(values<Case>({
      {"gated, one row", kPlain, kBf16, 1, 128, 256, false, false, false, silu},
      {"gates that fill no block of rows", kPlain, kBf16, 3, 74, 520, false, false, false, silu},
      {"eight rows, gelu", kPlain, kF16, 8, 38, 1032, false, false, false, Activation::gelu_tanh},
      {"one gate", kPlain, kBf16, 5, 2, 2304, false, false, false, silu},
      {"clamped", kPlain, kBf16, 2, 48, 64, false, false, false, Activation::clamped_swiglu},
      {"gated fp8 rows", kRows, kBf16, 4, 74, 272, false, false, false, silu},
      {"gated fp8 blocks", kBlocks, kBf16, 1, 384, 320, false, false, false, silu},
      {"gates that end within a block", kBlocks, kF16, 7, 144, 640, false, false, false, silu},

      {"added", kPlain, kBf16, 1, 96, 512, false, kAdds},
      {"added, eight rows of odd width", kPlain, kF16, 8, 37, 1032, false, kAdds, kBias},
      {"added fp8 rows", kRows, kBf16, 3, 50, 272, false, kAdds, kBias},
      {"added fp8 blocks", kBlocks, kF16, 5, 130, 384, false, kAdds},

      {"normed, a row of one warp", kPlain, kBf16, 1, 48, 512, kNormed},
      {"normed, eight rows of one warp", kPlain, kF16, 8, 40, 104, kNormed, false, kBias},
      {"normed, rows of four warps", kPlain, kBf16, 3, 17, 1024, kNormed},
      {"normed, a row of a few warps", kPlain, kBf16, 1, 33, 1032, kNormed},
      {"normed, rows that go round", kPlain, kBf16, 2, 20, 2312, kNormed, false, kBias},
      {"normed, the widest two rows", kPlain, kF16, 2, 16, 3072, kNormed},
      {"normed, eight rows", kPlain, kBf16, 8, 24, 768, kNormed},
      {"normed fp8 rows", kRows, kBf16, 2, 37, 2064, kNormed, false, kBias},
      {"normed fp8 blocks", kBlocks, kF16, 4, 144, 640, kNormed},

      {"normed and gated", kPlain, kBf16, 1, 74, 4104, kNormed, false, false, silu},
      {"normed and gated, eight rows", kPlain, kF16, 8, 38, 760, kNormed, false, false, silu},
      {"normed and gated fp8", kBlocks, kBf16, 3, 256, 1536, kNormed, false, false, silu},
      {"normed and added", kPlain, kBf16, 2, 30, 600, kNormed, kAdds, kBias},
  }));
  INFO(c.name);
  std::mt19937 rng(11);
  const FusedWeight weight(rng, c);
  const FusedInputs in(rng, c);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const std::int64_t outputs = c.outputs(), width = outputs + 3;
    HostTensor frame(c.out(), {c.m + 1, width});  // around the output, which must not change
    for (std::int64_t i = 0; i < frame.numel(); ++i) frame.set(i, 77.f);
    for (std::int64_t i = 0; i < in.before.numel() && c.adds; ++i)
      frame.set(i / outputs * width + 2 + i % outputs, in.before.at(i));
    const TensorView all = run.upload(frame);
    FusedLinearArgs args{.out = all.rows(0, c.m).narrow(1, 2, outputs + 2),
                         .x = run.upload(in.x),
                         .weight = weight.upload(run, c.format),
                         .norm_eps = kEps,
                         .norm_offset = kOffset,
                         .activation = c.activation,
                         .adds = c.adds};
    if (c.has_bias) args.bias = run.upload(in.bias);
    if (c.normed) args.norm_weight = run.upload_constant(in.norm_weight);
    HostTensor x;
    const HostTensor steps = in_steps(run, c, args, x);
    const bool is_here = run.ops().fused_linear(args, run.stream());
    CHECK(is_here == (backend.name == "cuda"));
    const HostTensor got = run.download(all);
    HostTensor part(c.out(), {c.m, outputs});
    for (std::int64_t i = 0; i < frame.numel(); ++i) {
      const std::int64_t row = i / width, column = i % width - 2;
      if (is_here && row < c.m && column >= 0 && column < outputs) {
        part.set(row * outputs + column, got.at(i));
      } else {
        CHECK(got.at(i) == frame.at(i));
      }
    }
    if (!is_here) continue;
    CHECK(part.values() == steps.values());  // summed and rounded alike
    if (c.activation) continue;
    check_close(part, plain_loop(c, weight, in, x),
                c.adds && c.format != kPlain ? kFp8Sums : tolerance_of(c.out()));
  }
}

TEST_CASE("fused_linear leaves to others what it does not do", "[ops][linear]") {
  std::mt19937 rng(12);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const auto does = [&](DType dtype, std::int64_t m, std::int64_t k, bool has_norm,
                          std::optional<Activation> activation, bool adds, bool has_bias = false) {
      const TensorView out = run.output(adds ? DType::f32 : dtype, {m, activation ? 8 : 16});
      FusedLinearArgs args{
          .out = out,
          .x = run.upload(random_tensor(rng, has_norm ? DType::f32 : dtype, {m, k})),
          .weight = {.data = run.upload_constant(random_tensor(rng, dtype, {16, k})), .scales = {}},
          .activation = activation,
          .adds = adds};
      if (has_norm) args.norm_weight = run.upload_constant(random_tensor(rng, dtype, {k}));
      if (has_bias) args.bias = run.upload(random_tensor(rng, out.dtype(), {16}));
      const bool done = run.ops().fused_linear(args, run.stream());
      CHECK((done || std::isnan(run.download(out).at(0))));
      return done;
    };
    const auto silu = Activation::silu;
    CHECK_FALSE(does(kBf16, 9, 64, false, silu, false));  // too many rows
    CHECK_FALSE(does(kBf16, 9, 64, false, {}, true));
    CHECK_FALSE(does(kBf16, 9, 64, true, {}, false));
    CHECK_FALSE(does(DType::f32, 1, 64, false, silu, false));  // not on tensor cores
    CHECK_FALSE(does(DType::f32, 1, 64, true, {}, false));
    CHECK_FALSE(does(kBf16, 1, 60, false, silu, false));        // rows that are no whole vectors
    CHECK_FALSE(does(kBf16, 2, 3080, true, {}, false));         // more than a block norms
    CHECK_FALSE(does(kBf16, 1, 64, false, silu, false, true));  // a bias of gates
    CHECK(does(kBf16, 2, 3072, true, {}, false) == (backend.name == "cuda"));
  }
}

}  // namespace quire::test
