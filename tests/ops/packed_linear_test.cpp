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
