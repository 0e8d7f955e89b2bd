#include <catch2/catch.hpp>

#include "tests/support/op_test.h"

namespace quire::test {
namespace {

// out[m, n] = Σ_k x[m, k] · w[n, k] + bias[n]
std::vector<double> reference(const HostTensor& x, const HostTensor& w, const HostTensor* bias) {
  const std::int64_t m = x.extents[0], k = x.extents[1], n = w.extents[0];
  std::vector<double> out(static_cast<std::size_t>(m * n));
  const std::vector<double> xs = x.values(), ws = w.values();
  for (std::int64_t i = 0; i < m * n; ++i) {
    double sum = bias == nullptr ? 0. : bias->at(i % n);
    for (std::int64_t j = 0; j < k; ++j) {
      sum +=
          xs[static_cast<std::size_t>(i / n * k + j)] * ws[static_cast<std::size_t>(i % n * k + j)];
    }
    out[static_cast<std::size_t>(i)] = sum;
  }
  return out;
}

struct Case {
  const char* name;
  DType x, w, out;
  std::int64_t m, n, k;
  bool bias;
};

const auto kF32 = DType::f32, kBf16 = DType::bf16, kF16 = DType::f16;

}  // namespace

TEST_CASE("linear multiplies by the transposed weight", "[ops][linear]") {
  const auto c = GENERATE(values<Case>({
      {"one row", kF32, kF32, kF32, 1, 64, 64, false},
      {"one row of bf16", kBf16, kBf16, kBf16, 1, 130, 256, false},
      {"odd everything, f32", kF32, kF32, kF32, 7, 37, 83, true},
      {"odd everything, bf16", kBf16, kBf16, kBf16, 7, 37, 83, true},
      {"odd everything, f16", kF16, kF16, kF16, 7, 37, 83, true},
      {"smaller than a register", kBf16, kBf16, kF32, 3, 3, 5, false},
      {"logits: bf16 in, f32 out", kBf16, kBf16, kF32, 4, 1536, 256, false},
      {"many rows", kBf16, kBf16, kBf16, 131, 96, 320, true},
      {"many rows, f32", kF32, kF32, kF32, 131, 96, 160, true},
      {"enough work for several threads", kBf16, kBf16, kF32, 64, 512, 512, false},
      {"few rows, f16", kF16, kF16, kF16, 3, 37, 1032, true},
      {"two rows", kBf16, kBf16, kF32, 2, 19, 2304, true},
      {"eight rows", kBf16, kBf16, kBf16, 8, 33, 520, true},
      {"five rows, one output, f16", kF16, kF16, kF32, 5, 1, 1288, false},
      {"nine rows", kBf16, kBf16, kBf16, 9, 40, 64, true},
      {"long sums", kBf16, kBf16, kF32, 2, 16, 4109, false},
      {"long sums of many rows", kBf16, kBf16, kF32, 97, 67, 4411, true},
      {"longer sums of many rows", kBf16, kBf16, kBf16, 19, 131, 9001, true},
      {"columns of more than one strip", kBf16, kBf16, kBf16, 9, 251, 96, true},
      {"columns of more than one strip, f32", kF32, kF32, kF32, 9, 251, 96, true},
      {"long sums of many rows, f32", kF32, kF32, kF32, 67, 13, 4200, false},
  }));
  INFO(c.name);
  std::mt19937 rng(1);
  const auto scale = 1.f / std::sqrt(static_cast<float>(c.k));
  const HostTensor x = random_tensor(rng, c.x, {c.m, c.k});
  const HostTensor w = random_tensor(rng, c.w, {c.n, c.k}, scale);
  const HostTensor bias = random_tensor(rng, c.out, {c.n});
  const std::vector<double> want = reference(x, w, c.bias ? &bias : nullptr);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView out = run.output(c.out, {c.m, c.n});
    run.ops().linear(out, run.upload(x), run.upload_constant(w),
                     c.bias ? run.upload(bias) : TensorView(), run.stream());
    check_close(run.download(out), want);
  }
}

TEST_CASE("linear gives a row the same bits whatever rows are beside it", "[ops][linear][cpu]") {
  const DType dtype = GENERATE(DType::f32, DType::bf16, DType::f16);
  const std::int64_t n = 203, k = GENERATE(333, 4500);
  std::mt19937 rng(2);
  const HostTensor x = random_tensor(rng, dtype, {67, k});
  const HostTensor w = random_tensor(rng, dtype, {n, k}, 0.05f);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name << " " << name_of(dtype));
    OpRun run(backend);
    const TensorView xs = run.upload(x), ws = run.upload_constant(w);
    const TensorView whole = run.output(DType::f32, {67, n});
    run.ops().linear(whole, xs, ws, {}, run.stream());
    const HostTensor together = run.download(whole);
    for (const std::int64_t m : {1, 2, 3, 4, 5, 6, 8, 16, 33, 64}) {
      const TensorView part = run.output(DType::f32, {m, n});
      run.ops().linear(part, xs.rows(1, 1 + m), ws, {}, run.stream());
      const HostTensor alone = run.download(part);
      const std::size_t row = static_cast<std::size_t>(n) * 4;
      INFO(m << " rows");
      CHECK(std::equal(alone.bytes.begin(), alone.bytes.end(),
                       together.bytes.begin() + static_cast<std::ptrdiff_t>(row)));
    }
  }
}

TEST_CASE("linear gives few rows the same bits whatever rows the weight has beside",
          "[ops][linear]") {
  const DType dtype = GENERATE(DType::bf16, DType::f16);
  const std::int64_t n = 33, k = GENERATE(72, 1320, 2312);  // few and many blocks, parts of steps
  std::mt19937 rng(4);
  const HostTensor x = random_tensor(rng, dtype, {3, k});
  const HostTensor w = random_tensor(rng, dtype, {8 * n, k}, 0.05f);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name << " " << name_of(dtype));
    OpRun run(backend);
    const TensorView xs = run.upload(x), ws = run.upload_constant(w);
    const TensorView whole = run.output(DType::f32, {3, 8 * n}),
                     part = run.output(DType::f32, {3, n});
    run.ops().linear(whole, xs, ws, {}, run.stream());
    run.ops().linear(part, xs, ws.rows(0, n), {}, run.stream());
    const HostTensor together = run.download(whole), alone = run.download(part);
    for (std::int64_t i = 0; i < 3 * n; ++i)
      REQUIRE(alone.at(i) == together.at(i / n * 8 * n + i % n));
  }
}

TEST_CASE("linear reads and writes rows that are strided", "[ops][linear]") {
  std::mt19937 rng(3);
  const HostTensor x = random_tensor(rng, DType::bf16, {5, 96});
  const HostTensor w = random_tensor(rng, DType::bf16, {20, 40}, 0.2f);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView out = run.output(DType::bf16, {5, 50});
    run.ops().linear(out.narrow(1, 10, 30), run.upload(x).narrow(1, 32, 72), run.upload_constant(w),
                     {}, run.stream());
    const HostTensor got = run.download(out);
    for (std::int64_t m = 0; m < 5; ++m) {
      HostTensor part(DType::bf16, {1, 40}), row(DType::bf16, {1, 20});
      for (std::int64_t i = 0; i < 40; ++i) part.set(i, x.at(m * 96 + 32 + i));
      for (std::int64_t i = 0; i < 20; ++i) row.set(i, got.at(m * 50 + 10 + i));
      check_close(row, reference(part, w, nullptr));
      CHECK(std::isnan(got.at(m * 50 + 9)));
      CHECK(std::isnan(got.at(m * 50 + 30)));
    }
  }
}

TEST_CASE("head_linear multiplies each head by its own weight", "[ops][linear]") {
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const std::int64_t tokens = 6, heads = 3, n = 21, k = 18;
  std::mt19937 rng(4);
  const HostTensor x = random_tensor(rng, dtype, {tokens, heads, k + 2});
  const HostTensor w = random_tensor(rng, dtype, {heads, n, k}, 0.25f);
  std::vector<double> want;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < k; ++j) {
          sum += x.at((t * heads + h) * (k + 2) + 2 + j) * w.at((h * n + i) * k + j);
        }
        want.push_back(sum);
      }
    }
  }
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView out = run.output(dtype, {tokens, heads, n});
    run.ops().head_linear(out, run.upload(x).narrow(2, 2, k + 2), run.upload_constant(w),
                          run.stream());
    check_close(run.download(out), want);
  }
}

TEST_CASE("quantized_linear unpacks MXFP4", "[ops][linear][mxfp4]") {
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const std::int64_t m = GENERATE(1, 9, 70), n = 45, k = 96;
  const float e2m1[8] = {0.f, 0.5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f};
  std::mt19937 rng(5);
  HostTensor data(DType::u8, {n, k / 2}), scales(DType::u8, {n, k / 32}), w(DType::f32, {n, k});
  for (std::byte& b : data.bytes) b = static_cast<std::byte>(rng() % 256);
  for (std::byte& b : scales.bytes) b = static_cast<std::byte>(120 + rng() % 4);
  scales.bytes[0] = std::byte{0};  // at the ends of the format
  scales.bytes[4] = std::byte{1};
  for (std::int64_t i = 0; i < n * k; ++i) {
    const unsigned code = data.as<std::uint8_t>()[i / 2] >> (i % 2 * 4) & 15u;
    const float value = (code & 8u) != 0 ? -e2m1[code & 7u] : e2m1[code & 7u];
    w.set(i, std::ldexp(value, scales.as<std::uint8_t>()[i / 32] - 127));
  }
  const HostTensor x = random_tensor(rng, dtype, {m, k});
  const HostTensor bias = random_tensor(rng, dtype, {n});
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView out = run.output(dtype, {m, n});
    const Weight weight{run.upload(data), run.upload(scales), WeightFormat::mxfp4};
    run.ops().quantized_linear(out, run.upload(x), weight, run.upload(bias), {}, run.stream());
    check_close(run.download(out), reference(x, w, &bias));
  }
}

}  // namespace quire::test
