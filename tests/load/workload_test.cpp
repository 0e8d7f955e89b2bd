#include "load/workload.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/error.h"

using namespace quire;
using namespace quire::load;

namespace {

std::filesystem::path write_file(const char* name, const std::string& text) {
  const auto path = std::filesystem::temp_directory_path() / name;
  std::ofstream(path) << text;
  return path;
}

}  // namespace

TEST_CASE("the same seed gives the same bodies, another index another prompt", "[load][workload]") {
  const Workload a({.model = "m", .seed = 7}), b({.model = "m", .seed = 7}),
      c({.model = "m", .seed = 8});
  CHECK(a.path() == "/v1/chat/completions");
  CHECK(a.body(3) == b.body(3));
  CHECK(a.body(3) != a.body(4));
  CHECK(a.body(3) != c.body(3));
}

TEST_CASE("a shared prefix begins every prompt", "[load][workload]") {
  const Workload w(
      {.model = "m", .input_words = 3, .shared_prefix_words = 20, .completions = true});
  const auto common = [&](int i, int j) {
    const std::string a = w.body(i), b = w.body(j);
    return std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin();
  };
  CHECK(common(1, 2) > 20 * 4);
}

TEST_CASE("prompts come from a file in turn, with their own max_tokens", "[load][workload]") {
  const auto path =
      write_file("quire_prompts.jsonl",
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"one\"}],\"max_tokens\":5}\n\n"
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"two\"}]}\n");
  const Workload w({.prompts = path, .model = "m", .output_tokens = 9});
  CHECK(w.body(0).find("\"one\"") != std::string::npos);
  CHECK(w.body(0).find("\"max_tokens\":5") != std::string::npos);
  CHECK(w.body(1).find("\"max_tokens\":9") != std::string::npos);
  CHECK(w.body(2) == w.body(0));
}

TEST_CASE("a bad prompt file is refused with the line", "[load][workload]") {
  const auto path =
      write_file("quire_bad_prompts.jsonl", "{\"messages\":[]}\n{\"prompt\":\"x\"}\n");
  CHECK_THROWS_WITH(Workload({.prompts = path, .model = "m"}), Catch::Contains(":2:"));
  CHECK_THROWS_AS(Workload({.prompts = "/nonexistent/file", .model = "m"}), Failure);
}

TEST_CASE("Poisson arrivals have the asked-for mean", "[load][workload]") {
  PoissonArrivals arrivals(50, 1);
  double sum = 0;
  for (int i = 0; i < 20'000; ++i) sum += arrivals.next_gap();
  CHECK(sum / 20'000 == Approx(1 / 50.0).epsilon(0.05));
}
