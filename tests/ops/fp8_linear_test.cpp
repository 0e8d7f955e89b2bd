// Products with fp8 weights. A backend may round x to e4m3 too; where it does, the reference does.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "backend/fp8.h"
#include "tests/support/op_test.h"

namespace quire::test {
namespace {

struct Case {
  const char* name;
  WeightFormat format;
  DType x, out;
  std::int64_t m, n, k;
  bool bias = false;
  float input_scale = 0.f;  // 0: each token, or block of one, has its own
};

constexpr auto kRows = WeightFormat::fp8_rows, kBlocks = WeightFormat::fp8_blocks;
const auto kF32 = DType::f32, kBf16 = DType::bf16, kF16 = DType::f16;

std::int64_t blocks_of(std::int64_t n) { return (n + kFp8Block - 1) / kFp8Block; }

HostTensor random_codes(std::mt19937& rng, std::vector<std::int64_t> extents) {
  HostTensor codes(DType::fp8_e4m3, std::move(extents));
  std::normal_distribution<float> normal(0.f, 100.f);
  for (std::int64_t i = 0; i < codes.numel(); ++i) {
    codes.as<fp8_e4m3>()[i] = fp8_e4m3(normal(rng));
  }
  return codes;
}

// Of [n, k]; of blocks with rows padded to four, as a weight's are.
struct Scales {
  WeightFormat format;
  std::int64_t stride;
  HostTensor values;

  Scales(std::mt19937& rng, WeightFormat f, std::int64_t n, std::int64_t k) : format(f) {
    stride = f == kRows ? 1 : (blocks_of(k) + 3) / 4 * 4;
    values =
        f == kRows ? HostTensor(DType::f32, {n}) : HostTensor(DType::f32, {blocks_of(n), stride});
    const float size = 0.01f / std::sqrt(static_cast<float>(k));
    std::uniform_real_distribution<float> uniform(0.5f * size, 1.5f * size);
    for (std::int64_t i = 0; i < values.numel(); ++i) values.set(i, uniform(rng));
  }
  float at(std::int64_t row, std::int64_t column) const {
    if (format == kRows) return values.at(row);
    return values.at(row / kFp8Block * stride + column / kFp8Block);
  }
  TensorView upload(OpRun& run, std::int64_t k) const {
    const TensorView all = run.upload(values);
    return format == kRows ? all : all.narrow(1, 0, blocks_of(k));
  }
};

// x as e4m3 with its scale and back: `span` elements of a row share one.
HostTensor rounded(const HostTensor& x, std::int64_t span, float given) {
  HostTensor out(DType::f32, x.extents);
  const std::int64_t k = x.extents[1];
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t row = i / k * k, begin = row + (i - row) / span * span;
    float largest = 0.f;
    for (std::int64_t j = begin; j < std::min(begin + span, row + k); ++j) {
      largest = std::max(largest, std::abs(x.at(j)));
    }
    const float scale = given > 0 ? given : std::max(largest / fp8_e4m3::kMax, 1e-30f);
    out.set(i, static_cast<float>(fp8_e4m3(x.at(i) / scale)) * scale);
  }
  return out;
}

std::vector<double> reference(const HostTensor& x, const HostTensor& codes, const Scales& scales,
                              const HostTensor* bias) {
  const std::int64_t m = x.extents[0], k = x.extents[1], n = codes.extents[0];
  std::vector<double> out;
  for (std::int64_t i = 0; i < m * n; ++i) {
    double sum = bias == nullptr ? 0. : bias->at(i % n);
    for (std::int64_t j = 0; j < k; ++j) {
      const double code = static_cast<float>(codes.as<fp8_e4m3>()[i % n * k + j]);
      sum += double{x.at(i / n * k + j)} * code * scales.at(i % n, j);
    }
    out.push_back(sum);
  }
  return out;
}

constexpr std::int64_t kFewRows = 8;  // whose x stays as it is

// Where there are fp8 tensor cores.
bool may_round_x(const OpBackend& backend, const Case& c) {
  return backend.name == "cuda" && c.x != kF32 && c.n % 16 == 0 && c.k % 16 == 0 && c.m > kFewRows;
}

}  // namespace

TEST_CASE("quantized_linear multiplies by fp8 and its scales", "[ops][linear][fp8]") {
  const auto c = GENERATE(values<Case>({
      {"one row", kRows, kBf16, kBf16, 1, 48, 64},
      {"rows, bf16 to f32, bias", kRows, kBf16, kF32, 7, 64, 272, true},
      {"rows, f16", kRows, kF16, kF16, 9, 80, 144, true},
      {"rows, f32", kRows, kF32, kF32, 5, 45, 83, true},
      {"rows, odd sizes, bf16", kRows, kBf16, kBf16, 21, 37, 83, true},
      {"rows, not a multiple of 16 of them", kRows, kBf16, kF32, 70, 136, 128, true},
      {"rows, a given scale of x", kRows, kBf16, kBf16, 6, 64, 96, false, 0.004f},
      {"rows, a given scale of many", kRows, kBf16, kBf16, 10, 64, 96, false, 0.004f},
      {"rows, few of many outputs", kRows, kBf16, kBf16, 3, 37, 2320, true},
      {"many rows", kRows, kBf16, kBf16, 70, 96, 320},
      {"blocks, one row", kBlocks, kBf16, kBf16, 1, 192, 320},
      {"blocks, three rows, bias", kBlocks, kBf16, kF32, 3, 64, 128, true},
      {"blocks, four rows", kBlocks, kBf16, kBf16, 4, 144, 640},
      {"blocks, six rows", kBlocks, kF16, kF16, 6, 192, 208, true},
      {"blocks, eight rows", kBlocks, kBf16, kBf16, 8, 300, 2192, true},
      {"blocks, ten rows", kBlocks, kBf16, kF32, 10, 64, 256, true},
      {"blocks, eleven rows of f16", kBlocks, kF16, kF16, 11, 48, 208, true},
      {"blocks, f32", kBlocks, kF32, kF32, 11, 130, 200, true},
      {"blocks, odd sizes, bf16", kBlocks, kBf16, kBf16, 9, 130, 200, true},
      {"blocks, not a multiple of 16 rows", kBlocks, kBf16, kF32, 33, 200, 272},
      {"blocks, many rows", kBlocks, kBf16, kBf16, 67, 256, 384},
      {"blocks, many long rows", kBlocks, kBf16, kBf16, 40, 16, 12288},
      {"blocks, many rows too long for many", kBlocks, kF16, kF16, 35, 32, 15360},
      {"blocks, many longer rows", kBlocks, kBf16, kF32, 33, 16, 28672},
  }));
  INFO(c.name);
  std::mt19937 rng(6);
  const HostTensor x = random_tensor(rng, c.x, {c.m, c.k});
  const HostTensor codes = random_codes(rng, {c.n, c.k});
  const Scales scales(rng, c.format, c.n, c.k);
  const HostTensor bias = random_tensor(rng,
                                        c.out == kF16 ? kF16
                                        : c.x == kF32 ? kF32
                                                      : kBf16,
                                        {c.n});
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView all = run.output(c.out, {c.m + 1, c.n});
    Weight weight{run.upload_constant(codes), scales.upload(run, c.k), c.format};
    if (c.input_scale > 0) weight.input_scale = run.upload(tensor_of<float>({c.input_scale}));
    const auto bytes =
        static_cast<std::int64_t>(run.ops().traits().linear_workspace_bytes(c.m, weight, c.x));
    run.ops().quantized_linear(
        all.rows(0, c.m), run.upload(x), weight, c.bias ? run.upload(bias) : TensorView(),
        run.output(DType::u8, {std::max<std::int64_t>(bytes, 1)}), run.stream());
    const HostTensor got = run.download(all.rows(0, c.m));
    std::vector<double> want = reference(x, codes, scales, c.bias ? &bias : nullptr);
    Tolerance tolerance = tolerance_of(c.out);
    if (may_round_x(backend, c)) {  // all of it or nothing
      const HostTensor input = rounded(x, c.format == kRows ? c.k : kFp8Block, c.input_scale);
      const auto of_rounded = reference(input, codes, scales, c.bias ? &bias : nullptr);
      if (distance(got, of_rounded) < distance(got, want)) {
        want = of_rounded;
        if (c.out == kF32) tolerance = kFp8Sums;
      }
    }
    check_close(got, want, tolerance);
    const HostTensor beyond = run.download(all.rows(c.m, c.m + 1));
    CHECK(std::all_of(beyond.bytes.begin(), beyond.bytes.end(),
                      [](std::byte b) { return b == std::byte{0xff}; }));
  }
}

TEST_CASE("every e4m3 code is the number it stands for", "[ops][linear][fp8]") {
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const std::int64_t n = 256, k = GENERATE(16, 18);  // 18: not on fp8 tensor cores
  HostTensor codes(DType::fp8_e4m3, {n, k}), x(dtype, {1, k}), scales(DType::f32, {n});
  for (std::int64_t i = 0; i < n; ++i) {
    codes.bytes[static_cast<std::size_t>(i * k + 1)] = static_cast<std::byte>(i);
    scales.set(i, 1.f);
  }
  x.set(1, 1.f);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView out = run.output(DType::f32, {1, n});
    const TensorView one = run.upload(tensor_of<float>({1.f}));  // so that x is exact as well
    const Weight weight{.data = run.upload_constant(codes),
                        .scales = run.upload(scales),
                        .format = kRows,
                        .input_scale = one};
    const auto bytes = run.ops().traits().linear_workspace_bytes(1, weight, dtype);
    run.ops().quantized_linear(
        out, run.upload(x), weight, {},
        run.output(DType::u8, {std::max<std::int64_t>(static_cast<std::int64_t>(bytes), 1)}),
        run.stream());
    const HostTensor got = run.download(out);
    for (std::int64_t i = 0; i < n; ++i) {
      INFO("code " << i);
      const float want = static_cast<float>(codes.as<fp8_e4m3>()[i * k + 1]);
      if (std::isnan(want)) {
        CHECK(std::isnan(got.at(i)));
      } else {
        CHECK(got.at(i) == want);
      }
    }
  }
}

TEST_CASE("an fp8 product gives a row the same bits whatever rows are beside it",
          "[ops][linear][fp8][cpu]") {
  const auto format = GENERATE(kRows, kBlocks);
  const std::int64_t n = 203, k = 333;
  std::mt19937 rng(7);
  const HostTensor x = random_tensor(rng, DType::bf16, {67, k});
  const HostTensor codes = random_codes(rng, {n, k});
  const Scales scales(rng, format, n, k);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const Weight weight{run.upload_constant(codes), scales.upload(run, k), format};
    const TensorView xs = run.upload(x), all = run.output(DType::f32, {67, n});
    run.ops().quantized_linear(all, xs, weight, {}, {}, run.stream());
    for (const auto& [begin, end] : {std::pair{0, 1}, {66, 67}, {3, 9}, {5, 60}}) {
      const TensorView some = run.output(DType::f32, {end - begin, n});
      run.ops().quantized_linear(some, xs.rows(begin, end), weight, {}, {}, run.stream());
      CHECK(same_bits(run.download(some), run.download(all.rows(begin, end))));
    }
  }
}

}  // namespace quire::test
