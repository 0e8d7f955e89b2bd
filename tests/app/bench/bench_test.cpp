// `quire bench`: figures of a model that is there, what they are a fraction of, and a peer.

#include <catch2/catch.hpp>
#include <simdjson.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "app/bench/bench_main.h"
#include "app/bench/peer.h"
#include "app/bench/report.h"
#include "tests/support/temp_path.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

int run_bench(const std::vector<std::string>& flags) {
  std::vector<const char*> argv{"quire bench"};
  for (const std::string& flag : flags) argv.push_back(flag.c_str());
  return bench_main(static_cast<int>(argv.size()), argv.data());
}

struct File {
  explicit File(const std::string& name, const std::string& text = {})
      : path(temp_path("quire_bench_test_" + name)) {
    std::ofstream(path) << text;
  }
  ~File() { fs::remove(path); }
  fs::path path;
};

TEST_CASE("every case is run as often as asked for, beside its peer", "[app][bench]") {
  const File json("out.json");
  const File peer("peer.sh", R"(#!/bin/sh
echo 'a line of its own'
echo "[{\"n_prompt\": $2, \"n_gen\": $4, \"avg_ts\": 12.5}]"
)");
  REQUIRE(run_bench({"models/quire-tiny", "-p", "16", "-n", "4", "-b", "1,3", "-D", "0,40", "-r", "3",
                     "--compare", "sh " + peer.path.string(), "--json", json.path.string()}) == 0);
  simdjson::dom::parser parser;
  const simdjson::dom::element report = parser.load(json.path.string());
  std::vector<std::string> names;
  for (const auto line : report["cases"].get_array()) {
    names.emplace_back(line["name"].get_string().value());
    INFO(names.back());
    CHECK(line["rates"].get_array().value().size() == 3);
    CHECK(line["tokens_per_s"].get_double().value() > 0);
    const bool alone = line["batch"].get_int64().value() == 1 && line["depth"].get_int64().value() == 0;
    CHECK(line["peer_rates"].get_array().value().size() == (alone ? 3 : 0));
    const bool generates = line["n_gen"].get_int64().value() > 0;
    CHECK((line["gb_per_s"].get_double().value() > 0) == generates);
    CHECK((line["gops"].get_double().value() > 0) == !generates);
  }
  CHECK(names == std::vector<std::string>{"pp16", "tg4", "tg4 x3", "tg4 @ 40", "tg4 x3 @ 40"});
  CHECK(report["probed_before"]["read_gb_s"].get_double().value() > 0);
  CHECK(report["resident_bytes"].get_double().value() > 1e6);
  CHECK(report["load_s"].get_double().value() > 0);
}

// Bytes that a token takes, of a model that a benchmark has run.
double bytes_of_a_token(const std::vector<std::string>& flags) {
  const File json("bytes.json");
  std::vector<std::string> all{"models/quire-tiny", "-p", "0", "-n", "4", "-r", "1", "--json", json.path.string()};
  all.insert(all.end(), flags.begin(), flags.end());
  REQUIRE(run_bench(all) == 0);
  simdjson::dom::parser parser;
  const simdjson::dom::element line = parser.load(json.path.string())["cases"].at(0);
  return 1e9 * line["gb_per_s"].get_double().value() / line["tokens_per_s"].get_double().value();
}

TEST_CASE("weights that are rounded while loading are read as the bytes that they then are", "[app][bench]") {
  const double published = bytes_of_a_token({});
  const double int8 = bytes_of_a_token({"--quantization", "int8"});
  const double int4 = bytes_of_a_token({"--quantization", "int4"});
  CHECK(published == Approx(6.3e6).epsilon(0.02));
  CHECK(int8 == Approx(published * 34 / 64).epsilon(0.03));  // 32 codes and a scale for 32 × 2 bytes
  CHECK(int4 < int8);
}

TEST_CASE("what cannot be run is said", "[app][bench]") {
  CHECK(run_bench({"models/quire-tiny", "-p", "0", "-n", "0"}) == 2);
  CHECK(run_bench({"models/no-such-model"}) == 2);
  CHECK(run_bench({"models/quire-tiny", "-p", "8", "-n", "0", "-r", "1", "--compare", "false"}) == 2);
  CHECK(run_bench({"models/quire-tiny", "-p", "8", "-n", "0", "-r", "1", "--compare", "echo"}) == 2);
}

TEST_CASE("a peer's rate is that of the same case", "[app][bench]") {
  const std::string json =
      R"([{"n_prompt":512,"n_gen":0,"avg_ts":97.5},{"n_prompt":0,"n_gen":128,"avg_ts":11.25}])";
  CHECK(rate_in(json, {.prompt = 512}) == 97.5);
  CHECK(rate_in(json, {.generate = 128}) == 11.25);
  CHECK_FALSE(rate_in(json, {.generate = 64}).has_value());
  CHECK_FALSE(peer_rate("false", {.generate = 128, .batch = 8}).has_value());
  CHECK_THROWS_WITH(peer_rate("false", {.generate = 128}),
                    Catch::Contains("ended with exit code 1"));
  CHECK_THROWS_WITH(peer_rate("kill -9 $$;", {.generate = 128}),
                    Catch::Contains("was ended by signal 9"));
}

TEST_CASE("ratios are those of pairs, and bytes those of weights and contexts", "[app][bench]") {
  const BenchLine line{.what = {.generate = 10, .batch = 2, .depth = 95},
                       .rates = {10, 40, 20},
                       .peer_rates = {5, 10, 20}};
  CHECK(peer_ratio(line) == 2);
  BenchReport report;
  report.size.step_bytes = 1e9;
  report.size.kv_elements = 1e6;
  // 10 steps a second, each 1 GB of weights and 2 contexts of 100 tokens of 2 MB.
  CHECK(gigabytes_per_second(report, line) == Approx(10 * (1 + 0.4)));
}

TEST_CASE("a step's least work is in the headers", "[app][bench]") {
  const ModelConfig config = read_model_config("models/quire-tiny");
  const BenchModel model = bench_model("models/quire-tiny", config);
  const double layer = static_cast<double>(config.hidden_size) * config.head_dim *
                           (2. * config.num_heads + 2. * config.num_kv_heads) +
                       3. * config.hidden_size * config.intermediate_size;
  CHECK(model.token_products == config.num_layers * layer);
  CHECK(model.head_products == double{1} * config.vocab_size * config.hidden_size);
  CHECK(model.kv_elements == 2. * config.num_layers * config.num_kv_heads * config.head_dim);
  CHECK(bench_model("", config).step_bytes == 0);
}

}  // namespace
}  // namespace quire
