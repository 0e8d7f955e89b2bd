// Which algorithm is chosen at start-up, and what is kept of it.

#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/cuda/gemm_bench.h"

namespace quire::cuda {
namespace {

using emulation::BlasProduct;
namespace fs = std::filesystem;

// Algorithm 3 is the fastest up to 16 tokens, 1 beyond.
double times(const BlasProduct& p) {
  const int best = p.tokens <= 16 ? 3 : 1;
  return p.algorithm == best ? 5 : 10 + p.algorithm;
}

void choose(Gemm& gemm, const Case& product, GemmBench& bench, std::int64_t tokens) {
  gemm.begin_choosing();
  product.run(gemm, bench, tokens);
  gemm.end_choosing();
  bench.algorithms_run();
}

int choice_for(Gemm& gemm, const Case& product, GemmBench& bench, std::int64_t tokens) {
  bench.algorithms_run();
  product.run(gemm, bench, tokens);
  const auto run = bench.algorithms_run();
  REQUIRE(run.size() == 1);
  return run[0];
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }

fs::path only_file(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  REQUIRE(files.size() == 1);
  return files[0];
}

TEST_CASE("The fastest algorithm of a bucket is chosen at start-up, for all buckets below too",
          "[cuda][gemm]") {
  GemmBench bench;
  bench.blas().algorithms = 5;
  bench.blas().microseconds = times;
  const auto gemm = bench.make();
  const Case product(bench, DType::f32, 64, 8, 8);
  choose(*gemm, product, bench, 64);
  product.check(bench, 64);
  for (const std::int64_t tokens : {1, 7, 16})
    CHECK(choice_for(*gemm, product, bench, tokens) == 3);
  for (const std::int64_t tokens : {17, 50, 64})
    CHECK(choice_for(*gemm, product, bench, tokens) == 1);
  CHECK_THAT(bench.reports().back(), Catch::Contains("9 measured"));
}

TEST_CASE("An algorithm that fails while it is measured is not chosen", "[cuda][gemm]") {
  GemmBench bench;
  bench.blas().algorithms = 5;
  bench.blas().microseconds = times;
  bench.blas().fails = [](const BlasProduct& p) { return p.algorithm == 1; };
  const auto gemm = bench.make();
  const Case product(bench, DType::f32, 64, 8, 8);
  choose(*gemm, product, bench, 64);
  CHECK(choice_for(*gemm, product, bench, 64) == 0);  // the fastest of the others
}

TEST_CASE("Without a start-up phase, and beyond its tokens, the library's first is taken",
          "[cuda][gemm]") {
  GemmBench bench;
  bench.blas().algorithms = 5;
  bench.blas().microseconds = times;
  const auto gemm = bench.make();
  const Case product(bench, DType::f32, 64, 8, 8);
  CHECK(choice_for(*gemm, product, bench, 12) == 0);
  choose(*gemm, product, bench, 32);
  CHECK(choice_for(*gemm, product, bench, 12) == 0);  // what was chosen stays
  CHECK(choice_for(*gemm, product, bench, 8) == 3);
  CHECK(choice_for(*gemm, product, bench, 64) == 0);
}

TEST_CASE("What the library takes for the best stays where nothing saves three hundredths",
          "[cuda][gemm]") {
  GemmBench bench;
  bench.blas().algorithms = 3;
  bench.blas().microseconds = [](const BlasProduct& p) { return 10.0 - 0.1 * p.algorithm; };
  const auto gemm = bench.make();
  const Case product(bench, DType::f32, 8, 8, 8);
  choose(*gemm, product, bench, 8);
  CHECK(choice_for(*gemm, product, bench, 8) == 0);
}

TEST_CASE("A candidate that refuses to run is not chosen", "[cuda][gemm]") {
  GemmBench bench;
  bench.blas().algorithms = 5;
  bench.blas().microseconds = times;
  bench.blas().refuses_run = [](const BlasProduct& p) { return p.algorithm % 4 == 0; };
  const auto gemm = bench.make();
  const Case product(bench, DType::f32, 8, 8, 8);
  choose(*gemm, product, bench, 8);
  CHECK(choice_for(*gemm, product, bench, 8) == 3);
}

TEST_CASE("Nothing is measured in a capture", "[cuda][gemm]") {
  GemmBench bench;
  bench.blas().algorithms = 5;
  bench.blas().microseconds = times;
  const auto gemm = bench.make();
  const Case product(bench, DType::f32, 8, 8, 8);
  gemm->begin_choosing();
  const auto graph = bench.device().capture(
      [&] { gemm->linear(product.out, product.x, product.weight, {}, bench.stream()); });
  CHECK(bench.algorithms_run() == std::vector{0});
  graph->replay(bench.stream());
  product.check(bench, 8);
}

TEST_CASE("Measuring ends when its time is over", "[cuda][gemm]") {
  GemmBench bench;
  bench.blas().algorithms = 8;
  bench.blas().microseconds = [](const BlasProduct&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return 1.0;
  };
  const auto gemm = bench.make("", /*seconds=*/0.02);
  const Case product(bench, DType::f32, 4096, 1, 2);
  gemm->begin_choosing();
  product.run(*gemm, bench, 4096);
  gemm->end_choosing();
  CHECK(bench.algorithms_run().size() < 20);
  CHECK_THAT(bench.reports().back(), Catch::Contains("no time was left"));
  product.check(bench, 4096);
}

TEST_CASE("Choices are kept for the next start, in a file of the user's own", "[cuda][gemm]") {
  const TempFolder folder;
  GemmBench bench;
  bench.blas().algorithms = 5;
  bench.blas().microseconds = times;
  const Case product(bench, DType::f32, 32, 8, 8), other(bench, DType::f32, 32, 16, 8);
  choose(*bench.make(folder.path()), product, bench, 32);
  choose(*bench.make(folder.path()), other, bench, 32);  // the first one's stay

  struct stat found {};
  REQUIRE(stat(folder.path().c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0700);
  const fs::path file = only_file(folder.path());
  REQUIRE(stat(file.c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0600);

  bench.blas().microseconds = [](const BlasProduct& p) { return p.algorithm == 4 ? 1. : 9.; };
  const auto gemm = bench.make(folder.path());
  gemm->begin_choosing();
  product.run(*gemm, bench, 32);
  other.run(*gemm, bench, 32);
  gemm->end_choosing();
  CHECK(bench.algorithms_run() == std::vector{1, 1});  // no run but the products themselves
  CHECK(choice_for(*gemm, product, bench, 8) == 3);
  CHECK_THAT(bench.reports().back(),
             Catch::Contains("0 measured") && Catch::Contains("10 known from a former start"));
}

TEST_CASE("A damaged file is ignored, said and replaced", "[cuda][gemm]") {
  const TempFolder folder;
  GemmBench bench;
  bench.blas().algorithms = 5;
  bench.blas().microseconds = times;
  const Case product(bench, DType::f32, 8, 8, 8);
  choose(*bench.make(folder.path()), product, bench, 8);
  const fs::path file = only_file(folder.path());
  const std::string whole = text_of(file);
  std::string changed = whole;
  changed[whole.size() / 2] ^= 1;
  const std::string damaged =
      GENERATE_COPY(as<std::string>(), changed, whole.substr(0, whole.size() - 9), "x", whole + "x",
                    std::string(5 << 20, 'x'));
  write(file, damaged);
  const auto gemm = bench.make(folder.path());
  const std::size_t before = bench.reports().size();
  choose(*gemm, product, bench, 8);
  REQUIRE(bench.reports().size() == before + 2);
  CHECK_THAT(bench.reports()[before], Catch::Contains(file.string()));
  CHECK(choice_for(*gemm, product, bench, 8) == 3);
  CHECK(text_of(file) == whole);
}

TEST_CASE("Choices of another version of the library count for nothing", "[cuda][gemm]") {
  const TempFolder folder;
  GemmBench bench;
  bench.blas().algorithms = 5;
  bench.blas().microseconds = times;
  const Case product(bench, DType::f32, 8, 8, 8);
  choose(*bench.make(folder.path()), product, bench, 8);
  bench.blas().microseconds = [](const BlasProduct& p) { return p.algorithm == 4 ? 1. : 9.; };
  ::setenv("QUIRE_EMULATION_CUBLASLT_VERSION", "130200", 1);
  const auto gemm = bench.make(folder.path());
  choose(*gemm, product, bench, 8);
  ::unsetenv("QUIRE_EMULATION_CUBLASLT_VERSION");
  CHECK(choice_for(*gemm, product, bench, 8) == 4);
}

TEST_CASE("A kept algorithm that the library no longer takes is measured anew", "[cuda][gemm]") {
  const TempFolder folder;
  GemmBench bench;
  bench.blas().algorithms = 5;
  bench.blas().microseconds = times;
  const Case product(bench, DType::f32, 8, 8, 8);
  choose(*bench.make(folder.path()), product, bench, 8);
  bench.blas().algorithms = 2;  // 3 is none of them
  const auto gemm = bench.make(folder.path());
  choose(*gemm, product, bench, 8);
  CHECK(bench.blas().num_checked > 0);
  CHECK(choice_for(*gemm, product, bench, 8) == 0);
}

TEST_CASE("A start without a writable folder chooses all the same", "[cuda][gemm]") {
  GemmBench bench;
  bench.blas().algorithms = 5;
  bench.blas().microseconds = times;
  const Case product(bench, DType::f32, 8, 8, 8);
  const auto gemm = bench.make("/dev/null/quire");
  choose(*gemm, product, bench, 8);
  CHECK(choice_for(*gemm, product, bench, 8) == 3);
  CHECK_THAT(bench.reports().front(), Catch::Contains("/dev/null/quire"));
}

}  // namespace
}  // namespace quire::cuda
