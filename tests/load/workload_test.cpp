#include "load/workload.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
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

TEST_CASE("arrivals have the asked-for mean, and their own evenness", "[load][workload]") {
  const auto spread = [](ArrivalKind kind, double burstiness) {
    Arrivals arrivals(kind, 50, burstiness, 1);
    double sum = 0, squares = 0;
    constexpr int kCount = 40'000;
    for (int i = 0; i < kCount; ++i) {
      const double gap = arrivals.next_gap();
      sum += gap;
      squares += gap * gap;
    }
    const double mean = sum / kCount;
    CHECK(mean == Approx(1 / 50.0).epsilon(0.05));
    return std::sqrt(std::max(0.0, squares / kCount - mean * mean)) / mean;
  };
  CHECK(spread(ArrivalKind::poisson, 1) == Approx(1).epsilon(0.05));
  Arrivals even(ArrivalKind::constant, 50, 1, 1);
  for (int i = 0; i < 100; ++i) CHECK(even.next_gap() == 1 / 50.0);
  CHECK(spread(ArrivalKind::gamma, 0.25) == Approx(2).epsilon(0.08));
  CHECK(spread(ArrivalKind::gamma, 4) == Approx(0.5).epsilon(0.05));
}

TEST_CASE("spread lengths keep their mean and are those of the seed", "[load][workload]") {
  const auto lengths = [](double spread, std::uint64_t seed) {
    const Workload workload({.model = "m",
                             .input_words = 100,
                             .output_tokens = 200,
                             .length_spread = spread,
                             .seed = seed});
    std::vector<double> words, tokens;
    for (std::uint64_t i = 0; i < 3000; ++i) {
      const std::string body = workload.body(i);
      words.push_back(static_cast<double>(std::count(body.begin(), body.end(), ' ')) + 1);
      tokens.push_back(std::stod(body.substr(body.find("max_tokens") + 12)));
    }
    return std::pair(words, tokens);
  };
  const auto mean = [](const std::vector<double>& v) {
    return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
  };
  const auto [words, tokens] = lengths(1, 7);
  CHECK(mean(words) == Approx(100).epsilon(0.1));
  CHECK(mean(tokens) == Approx(200).epsilon(0.1));
  CHECK(*std::max_element(tokens.begin(), tokens.end()) > 800);
  CHECK(*std::min_element(tokens.begin(), tokens.end()) < 40);
  CHECK(lengths(1, 7) == std::pair(words, tokens));
  CHECK(lengths(1, 8).second != tokens);
  CHECK(lengths(0, 7).second == std::vector<double>(3000, 200));
}
