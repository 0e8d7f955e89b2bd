// Products in fp8: how sums are made, and what is done where cuBLASLt refuses them.

#include "cuda/fp8_scratch.h"
#include "cuda/kernels/launchers.h"
#include "tests/cuda/gemm_bench.h"

namespace quire::cuda {
namespace {

using emulation::BlasProduct;

struct Fp8Case {
  GemmBench& bench;
  Weight weight;
  TensorView x, out, workspace;

  Fp8Case(GemmBench& on, WeightFormat format, std::int64_t tokens)
      : bench(on),
        x(bench.tensor(DType::bf16, {tokens, 256})),
        out(bench.tensor(DType::bf16, {tokens, 144})) {
    weight = {.data = bench.tensor(DType::fp8_e4m3, {144, 256}), .scales = {}, .format = format};
    if (format == WeightFormat::fp8_rows) {
      weight.scales = bench.upload(test::tensor_of(std::vector<float>(144, 0.25f)));
    } else {  // rows padded to four
      weight.scales =
          bench.upload(test::tensor_of(std::vector<float>(2 * 4, 0.25f), {2, 4})).narrow(1, 0, 2);
    }
    const Fp8Scratch scratch(tokens, weight);
    workspace = bench.upload(
        test::tensor_of(std::vector<float>(static_cast<std::size_t>(scratch.bytes / 4 + 1))));
  }
  std::vector<double> run(Gemm& gemm) {
    fp8_linear(gemm, out, x, weight, {}, workspace, bench.stream());
    return bench.read(out).values();
  }
  std::vector<double> unpacked() {
    quantized_linear(out, x, weight, {}, bench.stream());
    return bench.read(out).values();
  }
};

TEST_CASE("Sums of fp8 are fast beside scales of rows and exact beside scales of blocks",
          "[cuda][gemm][fp8]") {
  GemmBench bench;
  const auto gemm = bench.make();
  Fp8Case(bench, WeightFormat::fp8_rows, 12).run(*gemm);
  Fp8Case(bench, WeightFormat::fp8_blocks, 12).run(*gemm);
  REQUIRE(bench.blas().runs.size() == 2);
  CHECK(bench.blas().runs[0].sums_fast);
  CHECK_FALSE(bench.blas().runs[1].sums_fast);
}

TEST_CASE("Where fast sums of fp8 are refused exact ones are made", "[cuda][gemm][fp8]") {
  GemmBench bench;
  bench.blas().refuses_offer = [](const BlasProduct& p) { return p.sums_fast; };
  const auto gemm = bench.make();
  Fp8Case(bench, WeightFormat::fp8_rows, 12).run(*gemm);
  REQUIRE(bench.blas().runs.size() == 1);
  CHECK_FALSE(bench.blas().runs[0].sums_fast);
  CHECK(bench.reports().empty());
}

TEST_CASE("Fast sums that are refused for some tokens are made for others", "[cuda][gemm][fp8]") {
  TempFolder folder;
  for (int start = 0; start < 2; ++start) {  // the second knows what the first measured
    GemmBench bench;
    bench.blas().algorithms = 2;
    bench.blas().refuses_offer = [](const BlasProduct& p) { return p.sums_fast && p.tokens > 16; };
    const auto gemm = bench.make(folder.path());
    Fp8Case many(bench, WeightFormat::fp8_rows, 32), few(bench, WeightFormat::fp8_rows, 12);
    gemm->begin_choosing();
    many.run(*gemm);
    gemm->end_choosing();
    bench.blas().runs.clear();
    for (Fp8Case* product : {&many, &few}) product->run(*gemm);
    REQUIRE(bench.blas().runs.size() == 2);
    CHECK_FALSE(bench.blas().runs[0].sums_fast);
    CHECK(bench.blas().runs[1].sums_fast);
    CHECK_THAT(bench.reports().back(), Catch::Contains(start == 0 ? " 0 known" : "0 measured"));
  }
}

TEST_CASE("Fp8 that cuBLASLt refuses is unpacked", "[cuda][gemm][fp8]") {
  const auto format = GENERATE(WeightFormat::fp8_rows, WeightFormat::fp8_blocks);
  const std::int64_t tokens = GENERATE(2, 12, 15);  // of blocks, some beyond a multiple of four
  GemmBench bench;
  const auto gemm = bench.make();
  Fp8Case product(bench, format, tokens);
  const auto rounded = product.run(*gemm);
  CHECK_FALSE(bench.blas().runs.empty());
  bench.blas().runs.clear();
  bench.blas().refuses_run = [](const BlasProduct&) { return true; };
  const auto got = product.run(*gemm);
  CHECK(bench.blas().runs.empty());
  CHECK(got == product.unpacked());
  CHECK(got != rounded);  // x was rounded there
  CHECK(bench.reports().size() == 1);
}

}  // namespace
}  // namespace quire::cuda
