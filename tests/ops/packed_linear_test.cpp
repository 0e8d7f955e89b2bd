// Products with packed integers, in the layout of the backend: against the numbers that the codes
// stand for. The CPU rounds its input to 8 bits, and is held to that.

#include <catch2/catch.hpp>

#include "backend/fragment_pack.h"
#include "tests/ops/packed_case.h"
#include "tests/support/op_test.h"

namespace quire::test {
namespace {

TEST_CASE("quantized_linear multiplies packed integers of every format", "[ops][linear][packed]") {
  const GroupFormat format = kPackedFormats[GENERATE(range(0, 12))];
  const auto dtype = GENERATE(DType::bf16, DType::f16);
  // Rows of x by kernel: few, some, many; N and K in and out of tiles.
  const auto [m, n, k] = GENERATE(table<int, int, int>({{1, 32, 256},
                                                        {3, 37, 384},
                                                        {8, 16, 2176},
                                                        {9, 40, 128},
                                                        {32, 19, 1152},
                                                        {33, 290, 256},
                                                        {70, 48, 544}}));
  if (k % format.group != 0) return;
  INFO(name_of(format) << " " << name_of(dtype) << ", " << m << " rows, " << n << " × " << k);
  std::mt19937 rng(static_cast<unsigned>(m + n + k));
  const PackedCase packed(rng, format, n, k);
  const HostTensor x = random_tensor(rng, dtype, {m, k});
  const DType out_type = n % 2 == 0 ? dtype : DType::f32;
  const HostTensor bias = random_tensor(rng, out_type, {n});
  const std::vector<double> want = packed.product(x, &bias);
  for (OpBackend& backend : op_backends()) {
    if (!packed.suits(backend)) continue;
    INFO(backend.name);
    OpRun run(backend);
    const TensorView out = run.output(out_type, {m, n});
    run.ops().quantized_linear(out, run.upload(x), packed.weight(run), run.upload(bias), {},
                               run.stream());
    packed.check(backend, run.download(out), want);
  }
}

TEST_CASE("packed products read and write rows that are strided", "[ops][linear][packed]") {
  const int m = GENERATE(4, 40), n = 20, k = 128;
  std::mt19937 rng(7);
  const PackedCase packed(rng, {.bits = 4, .has_min = true}, n, k);
  const HostTensor x = random_tensor(rng, DType::bf16, {m, k + 64});
  HostTensor part(DType::bf16, {m, k});
  for (int i = 0; i < m * k; ++i) part.set(i, x.at(i / k * (k + 64) + 32 + i % k));
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView out = run.output(DType::bf16, {m, 50});
    run.ops().quantized_linear(out.narrow(1, 10, 10 + n), run.upload(x).narrow(1, 32, 32 + k),
                               packed.weight(run), {}, {}, run.stream());
    const HostTensor got = run.download(out);
    HostTensor rows(DType::bf16, {m, n});
    for (int i = 0; i < m * n; ++i) rows.set(i, got.at(i / n * 50 + 10 + i % n));
    packed.check(backend, rows, packed.product(part, nullptr));
    for (int row = 0; row < m; ++row) {
      CHECK(std::isnan(got.at(row * 50 + 9)));
      CHECK(std::isnan(got.at(row * 50 + 10 + n)));
    }
  }
}

TEST_CASE("packed products of few rows take a norm and add to a sum", "[ops][linear][packed]") {
  const GroupFormat format = kPackedFormats[GENERATE(range(0, 12))];
  const auto dtype = GENERATE(DType::bf16, DType::f16);
  const auto [m, n, k] = GENERATE(table<int, int, int>({{1, 37, 384}, {8, 16, 768}, {3, 40, 640}}));
  const bool normed = GENERATE(false, true), adds = GENERATE(false, true);
  if (!normed && !adds) return;
  INFO(name_of(format) << " " << name_of(dtype) << ", " << m << " rows, " << n << " × " << k);
  std::mt19937 rng(static_cast<unsigned>(m + n + k));
  const PackedCase packed(rng, format, n, k);
  const HostTensor x = random_tensor(rng, normed ? DType::f32 : dtype, {m, k});
  const HostTensor weight = random_tensor(rng, dtype, {k}, 0.3f, 1.f);
  const HostTensor before = random_tensor(rng, DType::f32, {m, n});
  const HostTensor bias = random_tensor(rng, DType::f32, {n});
  for (OpBackend& backend : op_backends()) {
    if (!packed.suits(backend)) continue;
    INFO(backend.name);
    OpRun run(backend);
    FusedLinearArgs args{.out = run.upload(before),
                         .x = run.upload(x),
                         .weight = packed.weight(run),
                         .bias = run.upload(bias),
                         .norm_eps = 1e-5f,
                         .adds = adds};
    if (normed) args.norm_weight = run.upload_constant(weight);
    const bool is_here = run.ops().fused_linear(args, run.stream());
    CHECK(is_here == (backend.name == "cuda"));
    const HostTensor got = run.download(args.out);
    if (!is_here) {
      CHECK(same_bits(got, before));
      continue;
    }
    TensorView rows = args.x;
    if (normed) {
      rows = run.output(dtype, {m, k});
      run.ops().rms_norm(rows, args.x, args.norm_weight, 1e-5f, 0.f, run.stream());
    }
    const TensorView product = run.output(DType::f32, {m, n});
    run.ops().quantized_linear(product, rows, args.weight, args.bias, {}, run.stream());
    std::vector<double> want = packed.product(run.download(rows), &bias);
    if (adds) {
      run.ops().add(product, run.upload(before), product, run.stream());
      for (std::size_t i = 0; i < want.size(); ++i) want[i] += before.at(static_cast<int>(i));
    }
    CHECK(same_bits(got, run.download(product)));
    packed.check(backend, got, want);
  }
}

TEST_CASE("packed products leave to others what they do not do", "[ops][linear][packed]") {
  std::mt19937 rng(9);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const auto does = [&](int m, int k, bool normed, std::optional<Activation> activation) {
      const PackedCase packed(rng, {.bits = 4, .has_min = true}, 16, k);
      const DType dtype = normed ? DType::f32 : DType::bf16;
      FusedLinearArgs args{.out = run.output(DType::f32, {m, activation ? 8 : 16}),
                           .x = run.upload(random_tensor(rng, dtype, {m, k})),
                           .weight = packed.weight(run),
                           .activation = activation};
      if (normed) args.norm_weight = run.upload_constant(random_tensor(rng, DType::bf16, {k}));
      return run.ops().fused_linear(args, run.stream());
    };
    CHECK(does(8, 768, true, {}) == (backend.name == "cuda"));
    CHECK_FALSE(does(9, 128, false, {}));
    CHECK_FALSE(does(8, 896, true, {}));
    CHECK_FALSE(does(1, 128, false, Activation::silu));
  }
}

TEST_CASE("quantized_embedding gives the numbers of a row", "[ops][packed]") {
  const GroupFormat format = kPackedFormats[GENERATE(range(0, 12))];
  const auto dtype = GENERATE(DType::f32, DType::bf16);
  INFO(name_of(format));
  const int n = 40, k = 384, first = 100;
  std::mt19937 rng(8);
  const PackedCase packed(rng, format, n, k);
  const std::vector<std::int32_t> ids{100, 139, 108, -1, 99, 123, 100};
  std::vector<double> want;
  for (const std::int32_t id : ids) {
    for (int i = 0; i < k; ++i) want.push_back(id < first ? 0. : packed.at(id - first, i));
  }
  for (OpBackend& backend : op_backends()) {
    if (!packed.suits(backend)) continue;
    INFO(backend.name);
    OpRun run(backend);
    const TensorView out = run.output(dtype, {static_cast<std::int64_t>(ids.size()), k});
    run.ops().quantized_embedding(out, packed.weight(run), first, run.upload(tensor_of(ids)),
                                  run.stream());
    check_close(run.download(out), want);
  }
}

}  // namespace
}  // namespace quire::test
