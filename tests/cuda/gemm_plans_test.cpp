// How many algorithms are asked for, and what happens to those that are refused.

#include <set>

#include "cuda/gemm_problem.h"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/cublaslt.h"
#include "tests/cuda/gemm_bench.h"

namespace quire::cuda {
namespace {

using emulation::BlasProduct;

TEST_CASE("Numbers of tokens share a bucket that ends within a quarter of them, or eight",
          "[cuda][gemm]") {
  CHECK(gemm_bucket(1) == 1);
  CHECK(gemm_bucket(2) == 8);
  CHECK(gemm_bucket(64) == 64);
  CHECK(gemm_bucket(65) == 80);
  CHECK(gemm_bucket(8192) == 8192);
  std::set<std::int64_t> buckets;
  for (std::int64_t tokens = 2; tokens <= 8192; ++tokens) {
    const std::int64_t bucket = gemm_bucket(tokens);
    REQUIRE(bucket >= tokens);
    REQUIRE(bucket - tokens < std::max<std::int64_t>(8, tokens / 4));
    REQUIRE(gemm_bucket(bucket) == bucket);
    buckets.insert(bucket);
  }
  CHECK(buckets.size() == 36);
}

TEST_CASE("8192 numbers of tokens take one plan and 37 algorithms", "[cuda][gemm]") {
  GemmBench bench;
  bench.blas().records = false;
  {
    const auto gemm = bench.make();
    const Case product(bench, DType::f32, 8192, 1, 2);
    for (std::int64_t tokens = 1; tokens <= 8192; ++tokens)
      gemm->linear(product.out.rows(0, tokens), product.x.rows(0, tokens), product.weight, {},
                   bench.stream());
    CHECK(bench.blas().num_asked == 37);
    CHECK(bench.blas().num_matrices == 4);
    bench.device().synchronize(bench.stream());
    product.check(bench, 8192);
  }
  CHECK(bench.blas().num_matrices == 0);
}

TEST_CASE("Of many shapes the plans of those that were used last stay", "[cuda][gemm]") {
  GemmBench bench;
  const auto gemm = bench.make();
  const Case product(bench, DType::f32, 1, 700, 2);
  const auto run = [&](std::int64_t n) {
    gemm->linear(product.out.reshape({700}).narrow(0, 0, n).reshape({1, n}), product.x,
                 product.weight.rows(0, n), {}, bench.stream());
  };
  for (std::int64_t n = 1; n <= 700; ++n) {
    run(n);
    run(1);
  }
  CHECK(bench.blas().num_matrices == 4 * 512);
  CHECK(bench.blas().num_asked == 700);  // the first was never forgotten
  run(2);
  CHECK(bench.blas().num_asked == 701);
}

TEST_CASE("What cuBLASLt refuses is computed by an own kernel, and reported once for a shape",
          "[cuda][gemm]") {
  const DType dtype = GENERATE(DType::f32, DType::bf16, DType::f16);
  const auto [n, k] = GENERATE(std::pair(1, 64), std::pair(40, 64), std::pair(7, 33));
  const bool has_bias = GENERATE(false, true);
  GemmBench bench;
  const bool when_run = GENERATE(false, true);
  (when_run ? bench.blas().refuses_run : bench.blas().refuses_offer) = [](const BlasProduct&) {
    return true;
  };
  const auto gemm = bench.make();
  const Case product(bench, dtype, 19, n, k, has_bias);
  product.run(*gemm, bench, 19);
  product.check(bench, 19);
  CHECK(bench.blas().runs.empty());
  CHECK(bench.reports().size() == 1);
  const int asked = bench.blas().num_asked;
  product.run(*gemm, bench, 19);
  CHECK(bench.blas().num_asked == asked);  // it is remembered
  product.run(*gemm, bench, 12);
  CHECK(bench.reports().size() == 1);
  CHECK_THAT(bench.reports().front(), Catch::Contains("[T, " + std::to_string(k) + "]"));
}

TEST_CASE("A refused product by heads is computed head by head", "[cuda][gemm]") {
  GemmBench bench;
  const TensorView x = bench.tensor(DType::bf16, {11, 3, 32}),
                   weight = bench.tensor(DType::bf16, {3, 16, 32}),
                   out = bench.tensor(DType::bf16, {11, 3, 16}),
                   own = bench.tensor(DType::bf16, {11, 3, 16});
  const auto gemm = bench.make();
  gemm->head_linear(out, x, weight, bench.stream());
  CHECK(bench.algorithms_run().size() == 1);
  bench.blas().refuses_run = [](const BlasProduct&) { return true; };
  gemm->head_linear(own, x, weight, bench.stream());
  CHECK(bench.algorithms_run().empty());
  const auto expected = bench.read(out), got = bench.read(own);
  for (std::int64_t i = 0; i < got.numel(); ++i)
    REQUIRE(got.at(i) == Approx(expected.at(i)).margin(0.02));
}

TEST_CASE("An algorithm that does not run with some tokens is replaced for these alone",
          "[cuda][gemm]") {
  GemmBench bench;
  bench.blas().algorithms = 3;
  bench.blas().refuses_run = [](const BlasProduct& p) {
    return p.tokens % 2 == 1 && p.algorithm < 2;
  };
  const auto gemm = bench.make();
  const Case product(bench, DType::f32, 16, 8, 8);
  for (const std::int64_t tokens : {16, 13, 16, 13, 14}) product.run(*gemm, bench, tokens);
  CHECK(bench.algorithms_run() == std::vector{0, 2, 0, 2, 0});
  CHECK(bench.blas().num_asked == 2);
  CHECK(bench.reports().empty());
  product.check(bench, 14);
}

TEST_CASE("A lost device is no refusal", "[cuda][gemm]") {
  GemmBench bench;
  const auto gemm = bench.make();
  const Case product(bench, DType::f32, 2, 8, 8);
  const TensorView freed = [&] {
    const Buffer gone = bench.device().allocate(8 * 8 * 4);
    return TensorView(gone.data(), DType::f32, {8, 8});
  }();
  CHECK_THROWS_WITH(gemm->linear(product.out, product.x, freed, {}, bench.stream()),
                    Catch::Contains("cublasLtMatmul"));
}

TEST_CASE("A cuBLASLt that is missing or too old is a sentence", "[cuda][gemm]") {
  CHECK(why_no_cublaslt("", 120400).empty());
  CHECK(why_no_cublaslt("", 130100).empty());
  CHECK_THAT(why_no_cublaslt("", 120103),
             Catch::Contains("12.4 or later") && Catch::EndsWith("not 12.1.3"));
  CHECK_THAT(why_no_cublaslt("libcublasLt.so.13: cannot open", 0),
             Catch::Contains("12.4 or later") && Catch::EndsWith("cannot open"));
}

TEST_CASE("A device with too old a cuBLASLt is not there", "[cuda][old]") {
  CHECK_THAT(cuda_unavailable(), Catch::EndsWith("not 12.3.0"));
  CHECK_THROWS_WITH(make_cuda_device({}), Catch::EndsWith("not 12.3.0"));
}

TEST_CASE("A device that the kernels were not built for is not there", "[cuda][turing]") {
  CHECK_THAT(cuda_unavailable(),
             Catch::Contains("8.0 or later") && Catch::Contains("this one has 7.5"));
  CHECK_THROWS_WITH(make_cuda_device({}), Catch::Contains("this one has 7.5"));
}

}  // namespace
}  // namespace quire::cuda
