#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/op_test.h"

namespace quire::test {
namespace {

double silu(double x) { return x / (1 + std::exp(-x)); }

std::vector<double> rms_norm(const std::vector<double>& x, std::size_t width, const HostTensor& w,
                             double eps, double offset) {
  std::vector<double> out(x.size());
  for (std::size_t r = 0; r < x.size(); r += width) {
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i) squares += x[r + i] * x[r + i];
    const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (std::size_t i = 0; i < width; ++i) {
      const auto at = static_cast<std::int64_t>((r + i) % static_cast<std::size_t>(w.numel()));
      out[r + i] = x[r + i] * factor * (w.at(at) + offset);
    }
  }
  return out;
}

struct Case {
  DType x, w;
  std::int64_t rows, width;
  float offset;
};

const auto kF32 = DType::f32, kBf16 = DType::bf16, kF16 = DType::f16;

}  // namespace

TEST_CASE("rms_norm normalizes rows, also in place", "[ops][norm]") {
  const auto c = GENERATE(values<Case>({{kF32, kF32, 3, 64, 0.f},
                                        {kF32, kBf16, 5, 97, 1.f},
                                        {kBf16, kBf16, 130, 256, 0.f},
                                        {kBf16, kF32, 2, 33, 1.f},
                                        {kF16, kF16, 4, 128, 0.f},
                                        {kF32, kF32, 1, 3, 0.f}}));
  std::mt19937 rng(1);
  const HostTensor x = random_tensor(rng, c.x, {c.rows, c.width});
  const HostTensor w = random_tensor(rng, c.w, {c.width}, 0.3f, 1.f);
  const auto want = rms_norm(x.values(), static_cast<std::size_t>(c.width), w, 1e-6, c.offset);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name << " " << name_of(c.x) << " " << c.width);
    OpRun run(backend);
    const TensorView xs = run.upload(x), out = run.output(c.x, x.extents);
    run.ops().rms_norm(out, xs, run.upload_constant(w), 1e-6f, c.offset, run.stream());
    check_close(run.download(out), want);
    run.ops().rms_norm(xs, xs, run.upload_constant(w), 1e-6f, c.offset, run.stream());
    check_close(run.download(xs), want);
  }
}

TEST_CASE("rms_norm takes the heads of a strided slice", "[ops][norm]") {
  std::mt19937 rng(2);
  const std::int64_t tokens = 4, heads = 3, dim = 20;
  const HostTensor x = random_tensor(rng, DType::bf16, {tokens, heads * dim + 12});
  const HostTensor w = random_tensor(rng, DType::bf16, {dim}, 0.3f, 1.f);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView xs = run.upload(x);
    const TensorView slice = xs.narrow(1, 12, 12 + heads * dim).split_last(dim);
    run.ops().rms_norm(slice, slice, run.upload_constant(w), 1e-6f, 0.f, run.stream());
    const HostTensor got = run.download(xs);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t row = t * (heads * dim + 12);
      HostTensor in(DType::bf16, {heads * dim}), out = in;
      for (std::int64_t i = 0; i < heads * dim; ++i) {
        in.set(i, x.at(row + 12 + i));
        out.set(i, got.at(row + 12 + i));
      }
      check_close(out, rms_norm(in.values(), dim, w, 1e-6, 0.));
      for (std::int64_t i = 0; i < 12; ++i) CHECK(got.at(row + i) == x.at(row + i));
    }
  }
}

TEST_CASE("add_rms_norm sums into the residual and normalizes it", "[ops][norm]") {
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  std::mt19937 rng(3);
  const HostTensor x = random_tensor(rng, dtype, {6, 72});
  const HostTensor residual = random_tensor(rng, dtype, {6, 72});
  const HostTensor w = random_tensor(rng, dtype, {72}, 0.3f, 1.f);
  std::vector<double> sums = x.values();
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += residual.values()[i];
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView xs = run.upload(x), res = run.upload(residual);
    run.ops().add_rms_norm(xs, res, xs, run.upload_constant(w), 1e-5f, 0.f, run.stream());
    check_close(run.download(res), sums);
    check_close(run.download(xs), rms_norm(sums, 72, w, 1e-5, 0.));
  }
}

TEST_CASE("gated_rms_norm gates before or after the norm", "[ops][norm]") {
  const bool norm_first = GENERATE(false, true);
  const bool weight_per_group = GENERATE(false, true);
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const std::int64_t tokens = 5, groups = 2, dim = GENERATE(24, 20);
  std::mt19937 rng(4);
  const HostTensor x = random_tensor(rng, dtype, {tokens, groups, dim});
  const HostTensor gate = random_tensor(rng, dtype, {tokens, groups, dim});
  const HostTensor w = random_tensor(
      rng, dtype, weight_per_group ? std::vector<std::int64_t>{groups, dim} : std::vector{dim},
      0.3f, 1.f);
  std::vector<double> want = x.values();
  const std::vector<double> gates = gate.values();
  const auto apply_gate = [&] {
    for (std::size_t i = 0; i < want.size(); ++i) want[i] *= silu(gates[i]);
  };
  if (!norm_first) apply_gate();
  want = rms_norm(want, dim, w, 1e-5, 0.);
  if (norm_first) apply_gate();
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name << (norm_first ? " norm first" : " gate first"));
    OpRun run(backend);
    const TensorView out = run.output(dtype, x.extents);
    run.ops().gated_rms_norm(out, run.upload(x), run.upload(gate), run.upload_constant(w), 1e-5f,
                             norm_first, run.stream());
    check_close(run.download(out), want);
  }
}

}  // namespace quire::test
