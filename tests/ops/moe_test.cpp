#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "backend/fp8.h"
#include "tests/ops/packed_case.h"
#include "tests/support/op_test.h"

namespace quire::test {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct ExpertCase {
  const char* name;
  DType dtype;
  std::int64_t tokens, hidden, inner, experts, k;
  Activation act;
  bool gated, bias;
  WeightFormat format = WeightFormat::plain;
  GroupFormat group = {};  // of fragments, which stand for the backend's tiles
  int shift = 0;           // MXFP4: gates and ups are larger by 2^shift, tokens smaller
};

double activate(Activation act, double g) {
  switch (act) {
    case Activation::relu2:
      return g > 0 ? g * g : 0;
    case Activation::clamped_swiglu:
      return std::min(g, 7.) * sigmoid(1.702 * std::min(g, 7.));
    default:
      return g * sigmoid(g);
  }
}

const auto kF32 = DType::f32, kBf16 = DType::bf16, kF16 = DType::f16;
const auto kMxfp4 = WeightFormat::mxfp4, kRows = WeightFormat::fp8_rows,
           kBlocks = WeightFormat::fp8_blocks, kFragments = WeightFormat::fragments;

class Experts {
 public:
  explicit Experts(const ExpertCase& c) : c_(c) {
    std::mt19937 rng(7);
    rows_ = c.gated ? 2 * c.inner : c.inner;
    // Squares leave the order of 1, for which tolerances are made where the inner layer is bf16.
    const float size = c.act == Activation::relu2 && !c.bias ? 0.5f : 1.f;
    x = random_tensor(rng, c.dtype, {c.tokens, c.hidden}, std::ldexp(size, -c.shift));
    up_bias = random_tensor(rng, c.dtype, {c.experts, rows_});
    down_bias = random_tensor(rng, c.dtype, {c.experts, c.hidden});
    gate_up = make_weight(rng, rows_, c.hidden, c.shift);
    down = make_weight(rng, c.hidden, c.inner, 0);
    weights = HostTensor(DType::f32, {c.tokens, c.k});
    ids = HostTensor(DType::i32, {c.tokens, c.k});
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      std::vector<std::int32_t> order(static_cast<std::size_t>(c.experts));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), rng);
      for (std::int64_t j = 0; j < c.k; ++j) {
        ids.as<std::int32_t>()[t * c.k + j] = order[static_cast<std::size_t>(j)];
        weights.set(t * c.k + j, 0.1f + static_cast<float>(rng() % 100) / 100.f);
      }
    }
  }

  // Whether so many tokens are another product than a few, as they are on Hopper.
  bool is_prompt(const OpBackend& backend, std::int64_t tokens) const {
    return backend.name == "cuda" && c_.dtype != kF32 &&
           tokens * c_.k / c_.experts > kFewOfExpert &&
           (c_.format == WeightFormat::plain || c_.format == kMxfp4 || is_fp8(c_.format)) &&
           c_.inner % 16 == 0;
  }

  // rounds: x and the inner layer become fp8.
  std::vector<double> reference(bool rounds) const {
    std::vector<double> out;
    for (std::int64_t t = 0; t < c_.tokens; ++t) {
      std::vector<double> sum(static_cast<std::size_t>(c_.hidden));
      for (std::int64_t j = 0; j < c_.k; ++j) {
        const std::int64_t e = ids.as<std::int32_t>()[t * c_.k + j];
        const std::vector<double> y = expert(t, e, rounds);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weights.at(t * c_.k + j) * y[i];
      }
      out.insert(out.end(), sum.begin(), sum.end());
    }
    return out;
  }

  HostTensor run(OpRun& run, std::int64_t begin, std::int64_t end) const {
    MoeExpertsArgs args;
    const MoeShape shape{static_cast<int>(c_.experts),
                         static_cast<int>(c_.k),
                         static_cast<int>(c_.hidden),
                         static_cast<int>(c_.inner),
                         c_.gated,
                         c_.dtype,
                         is_fp8(c_.format)};
    const std::size_t bytes =
        run.ops().traits().moe_workspace_bytes(static_cast<int>(end - begin), shape);
    args.out = run.output(c_.dtype, {end - begin, c_.hidden});
    args.x = run.upload(x).rows(begin, end);
    args.ids = run.upload(ids).rows(begin, end);
    args.weights = run.upload(weights).rows(begin, end);
    args.gate_up = upload(run, gate_up);
    args.down = upload(run, down);
    if (c_.bias) {
      args.gate_up_bias = run.upload(up_bias);
      args.down_bias = run.upload(down_bias);
    }
    args.activation = c_.act;
    args.gated = c_.gated;
    args.workspace = run.output(DType::u8, {static_cast<std::int64_t>(bytes)});
    run.ops().moe_experts(args, run.stream());
    return run.download(args.out);
  }

 private:
  struct Packed {
    HostTensor plain, data, scales;
    std::shared_ptr<PackedCase> tiles = nullptr;
  };

  Packed make_weight(std::mt19937& rng, std::int64_t n, std::int64_t k, int shift) const {
    const float deviation = 1.f / std::sqrt(static_cast<float>(k));
    if (c_.format == WeightFormat::plain)
      return {random_tensor(rng, c_.dtype, {c_.experts, n, k}, deviation), {}, {}};
    if (is_fp8(c_.format)) return make_fp8(rng, n, k, deviation);
    if (is_packed(c_.format)) {
      const auto tiles = std::make_shared<PackedCase>(rng, c_.group, n, k, c_.experts);
      HostTensor plain(DType::f32, {c_.experts, n, k});
      for (std::int64_t i = 0; i < plain.numel(); ++i)
        plain.set(i, static_cast<float>(tiles->values[static_cast<std::size_t>(i)]));
      return {std::move(plain), {}, {}, tiles};
    }
    const float e2m1[8] = {0.f, 0.5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f};
    Packed p{HostTensor(DType::f32, {c_.experts, n, k}),
             HostTensor(DType::u8, {c_.experts, n, k / 2}),
             HostTensor(DType::u8, {c_.experts, n, k / 32})};
    for (std::byte& b : p.data.bytes) b = static_cast<std::byte>(rng() % 256);
    constexpr float kDeviation = 2.9f;  // of the sixteen values
    const int exponent =
        127 + shift + static_cast<int>(std::floor(std::log2(deviation / kDeviation)));
    // And of eight one that is smaller, by up to all of the format's range.
    for (std::byte& b : p.scales.bytes) {
      const unsigned draw = rng();
      const unsigned any = draw >> 8 & 0xffff, most = static_cast<unsigned>(exponent);
      b = static_cast<std::byte>(draw % 8 == 0 ? any % most : most + (any & 1));
    }
    for (std::int64_t i = 0; i < p.plain.numel(); ++i) {
      const unsigned code = p.data.as<std::uint8_t>()[i / 2] >> (i % 2 * 4) & 15u;
      const float value = (code & 8u) != 0 ? -e2m1[code & 7u] : e2m1[code & 7u];
      p.plain.set(i, std::ldexp(value, p.scales.as<std::uint8_t>()[i / 32] - 127));
    }
    return p;
  }

  // One scale for a row, or for a block; rows of these are padded to four.
  Packed make_fp8(std::mt19937& rng, std::int64_t n, std::int64_t k, float deviation) const {
    const auto blocks = [](std::int64_t size) { return (size + kFp8Block - 1) / kFp8Block; };
    const bool rows = c_.format == kRows;
    const std::int64_t scale_rows = rows ? n : blocks(n), padded = (blocks(k) + 3) / 4 * 4;
    Packed p{HostTensor(DType::f32, {c_.experts, n, k}),
             HostTensor(DType::fp8_e4m3, {c_.experts, n, k}),
             rows ? HostTensor(DType::f32, {c_.experts, n})
                  : HostTensor(DType::f32, {c_.experts, scale_rows, padded})};
    for (std::int64_t i = 0; i < p.scales.numel(); ++i) {
      p.scales.set(i, deviation * (0.5f + static_cast<float>(rng() % 100) / 100.f));
    }
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < p.plain.numel(); ++i) {
      const std::int64_t e = i / (n * k), row = i / k % n, column = i % k;
      const std::int64_t at =
          rows ? e * n + row : (e * scale_rows + row / kFp8Block) * padded + column / kFp8Block;
      const fp8_e4m3 code(normal(rng));
      p.data.as<fp8_e4m3>()[i] = code;
      p.plain.set(i, static_cast<float>(code) * p.scales.at(at));
    }
    return p;
  }

  Weight upload(OpRun& run, const Packed& p) const {
    if (c_.format == WeightFormat::plain) return {run.upload(p.plain), {}, c_.format};
    if (p.tiles) return p.tiles->weight(run);
    const TensorView scales = run.upload(p.scales);
    const std::int64_t k = p.plain.extents[2];
    return {run.upload(p.data),
            c_.format == kBlocks ? scales.narrow(2, 0, (k + kFp8Block - 1) / kFp8Block) : scales,
            c_.format};
  }

  std::vector<double> expert(std::int64_t t, std::int64_t e, bool rounds) const {
    std::vector<double> token, h, out;
    for (std::int64_t i = 0; i < c_.hidden; ++i) token.push_back(x.at(t * c_.hidden + i));
    if (rounds) round_to_fp8(token);
    for (std::int64_t n = 0; n < rows_; ++n) {
      double sum = c_.bias ? up_bias.at(e * rows_ + n) : 0.;
      for (std::int64_t i = 0; i < c_.hidden; ++i) {
        sum +=
            token[static_cast<std::size_t>(i)] * gate_up.plain.at((e * rows_ + n) * c_.hidden + i);
      }
      h.push_back(sum);
    }
    for (std::int64_t i = 0; i < c_.inner; ++i) {
      auto& g = h[static_cast<std::size_t>(i)];
      g = activate(c_.act, g);
      if (!c_.gated) continue;
      const double u = h[static_cast<std::size_t>(c_.inner + i)];
      g *= c_.act == Activation::clamped_swiglu ? std::clamp(u, -7., 7.) + 1 : u;
    }
    h.resize(static_cast<std::size_t>(c_.inner));
    if (rounds) {
      HostTensor stored(c_.dtype, {c_.inner});
      for (std::int64_t i = 0; i < c_.inner; ++i)
        stored.set(i, static_cast<float>(h[static_cast<std::size_t>(i)]));
      h = stored.values();
      round_to_fp8(h);
    }
    for (std::int64_t n = 0; n < c_.hidden; ++n) {
      double sum = c_.bias ? down_bias.at(e * c_.hidden + n) : 0.;
      for (std::int64_t i = 0; i < c_.inner; ++i) {
        sum += h[static_cast<std::size_t>(i)] * down.plain.at((e * c_.hidden + n) * c_.inner + i);
      }
      out.push_back(sum);
    }
    return out;
  }

  // 128 at a time, with a scale.
  static void round_to_fp8(std::vector<double>& values) {
    for (std::size_t begin = 0; begin < values.size(); begin += kFp8Block) {
      const std::size_t end = std::min(begin + kFp8Block, values.size());
      float largest = 0.f;
      for (std::size_t i = begin; i < end; ++i)
        largest = std::max(largest, static_cast<float>(std::abs(values[i])));
      const float scale = std::max(largest / fp8_e4m3::kMax, 1e-30f);
      for (std::size_t i = begin; i < end; ++i)
        values[i] = static_cast<float>(fp8_e4m3(static_cast<float>(values[i]) / scale)) * scale;
    }
  }

  static constexpr std::int64_t kFewOfExpert = 32;  // tokens, on average

  ExpertCase c_;
  std::int64_t rows_;
  HostTensor x, ids, weights, up_bias, down_bias;
  Packed gate_up, down;
};

}  // namespace

TEST_CASE("moe_experts sums the weighted answers of a token's experts", "[ops][moe]") {
  const auto c = GENERATE(values<ExpertCase>({
      {"one token", kF32, 1, 40, 24, 6, 2, Activation::silu, true, false},
      {"batch", kF32, 37, 40, 24, 6, 2, Activation::silu, true, false},
      {"bf16", kBf16, 19, 64, 32, 4, 3, Activation::silu, true, false},
      {"no gate, relu2", kF32, 9, 48, 20, 5, 2, Activation::relu2, false, false},
      {"gpt-oss", kF32, 11, 64, 32, 4, 2, Activation::clamped_swiglu, true, true},
      {"gpt-oss, MXFP4", kF32, 11, 64, 32, 4, 2, Activation::clamped_swiglu, true, true, kMxfp4},
      {"gpt-oss, MXFP4, bf16", kBf16, 5, 64, 64, 4, 4, Activation::clamped_swiglu, true, true,
       kMxfp4},
      {"bf16, many tokens of an expert", kBf16, 150, 136, 72, 2, 1, Activation::silu, true, false},
      {"bf16, no gate", kBf16, 21, 72, 136, 3, 2, Activation::relu2, false, true},
      {"MXFP4, many tokens of an expert", kBf16, 90, 160, 96, 2, 1, Activation::clamped_swiglu,
       true, true, kMxfp4},
      {"MXFP4, two tiles of an expert, a stage again and again", kBf16, 150, 608, 160, 3, 2,
       Activation::silu, true, false, kMxfp4},
      {"MXFP4, no gate, many tokens of an expert", kBf16, 80, 96, 288, 2, 1, Activation::relu2,
       false, false, kMxfp4},
      {"MXFP4 with scales above 2",
       kBf16,
       90,
       160,
       64,
       2,
       1,
       Activation::silu,
       true,
       true,
       kMxfp4,
       {},
       9},
      {"fp8 rows, f32", kF32, 13, 40, 24, 4, 2, Activation::silu, true, false, kRows},
      {"fp8 rows, bf16", kBf16, 21, 64, 48, 4, 2, Activation::silu, true, true, kRows},
      {"fp8 rows, many tokens of an expert", kBf16, 90, 80, 64, 2, 1, Activation::relu2, false,
       false, kRows},
      {"fp8 blocks, f32", kF32, 5, 200, 128, 3, 2, Activation::silu, true, false, kBlocks},
      {"fp8 blocks, bf16", kBf16, 9, 272, 128, 3, 2, Activation::silu, true, false, kBlocks},
      {"4 bits with minima",
       kBf16,
       9,
       160,
       64,
       4,
       2,
       Activation::silu,
       true,
       false,
       kFragments,
       {.bits = 4, .has_min = true}},
      {"4 bits, many tokens of an expert",
       kBf16,
       90,
       128,
       384,
       2,
       1,
       Activation::silu,
       true,
       true,
       kFragments,
       {.bits = 4, .zero = 8}},
      {"8 bits, no gate",
       kBf16,
       21,
       64,
       288,
       3,
       2,
       Activation::relu2,
       false,
       true,
       kFragments,
       {.bits = 8, .zero = 128}},
      {"6 bits in groups of 16",
       DType::f16,
       12,
       96,
       320,
       3,
       2,
       Activation::silu,
       true,
       false,
       kFragments,
       {.bits = 6, .group = 16, .zero = 32}},
      {"bf16, two steps of K and a part of one, edges everywhere", kBf16, 140, 152, 136, 3, 2,
       Activation::silu, true, true},
      {"f16, more work than multiprocessors, a stage again and again", kF16, 130, 584, 272, 3, 1,
       Activation::silu, true, false},
      {"bf16, no gate, many tokens of an expert", kBf16, 80, 264, 328, 2, 1, Activation::relu2,
       false, false},
      {"fp8 blocks, many tokens of an expert", kBf16, 100, 400, 208, 2, 1, Activation::silu, true,
       false, kBlocks},
      {"fp8 blocks, f16, no gate", kF16, 70, 272, 304, 2, 1, Activation::relu2, false, true,
       kBlocks},
      {"fp8 rows with a gate, many tokens of an expert", kBf16, 140, 656, 144, 3, 2,
       Activation::clamped_swiglu, true, true, kRows},
      {"one expert takes all", kF32, 30, 16, 16, 1, 1, Activation::silu, true, false},
  }));
  INFO(c.name);
  const Experts experts(c);
  const std::vector<double> exact = experts.reference(false);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const HostTensor all = experts.run(run, 0, c.tokens);
    Tolerance tolerance = tolerance_of(c.dtype);
    if (c.dtype != kF32) tolerance.absolute *= 3;  // the inner layer is rounded too
    if (is_packed(c.format) && PackedCase::is_cpu(backend)) tolerance.absolute += 0.1;  // and x
    const bool prompt = experts.is_prompt(backend, c.tokens);
    // Beside fp8 weights x may be rounded, or not: either all of it or nothing.
    std::vector<double> want = exact;
    if (prompt && is_fp8(c.format)) {
      const std::vector<double> rounded = experts.reference(true);
      if (distance(all, rounded) < distance(all, exact)) want = rounded;
    }
    check_close(all, want, tolerance);
    // The last token's bits do not depend on what else is in the step, of a prompt or of none.
    const std::int64_t last = c.tokens - 1, begin = prompt ? 1 : last;
    REQUIRE(experts.is_prompt(backend, c.tokens - begin) == prompt);
    const HostTensor fewer = experts.run(run, begin, c.tokens);
    const auto row = static_cast<std::size_t>(c.hidden) * size_of(c.dtype);
    CHECK(std::equal(fewer.bytes.end() - static_cast<std::ptrdiff_t>(row), fewer.bytes.end(),
                     all.bytes.begin() + static_cast<std::ptrdiff_t>(row) * last));
  }
}

}  // namespace quire::test
