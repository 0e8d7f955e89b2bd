// What generation_config.json says: defaults of sampling, and limits.

#include <catch2/catch.hpp>

#include "model/config.h"

namespace quire {
namespace {

TEST_CASE("generation_config.json suggests sampling", "[model][config]") {
  const GenerationConfig g = parse_generation_config(
      R"({"eos_token_id":[2,3],"temperature":0.6,"top_k":20,"top_p":0.95})", "g.json");
  CHECK(g.eos_token_ids == std::vector<std::int32_t>{2, 3});
  CHECK(g.temperature == 0.6);
  CHECK(g.top_k == 20);
  CHECK_FALSE(g.min_p.has_value());
  CHECK(parse_generation_config(R"({"eos_token_id":7})", "g.json").eos_token_ids.size() == 1);
  CHECK_THROWS_WITH(parse_generation_config(R"({"temperature":-5})", "g.json"),
                    "g.json: temperature must be from 0 to 100");
  // What each request would be refused for.
  CHECK_THROWS_WITH(parse_generation_config(R"({"top_p":0.0})", "g.json"),
                    Catch::Contains("g.json: top_p must be above 0 and at most 1"));
  CHECK_THROWS_WITH(parse_generation_config(R"({"repetition_penalty":0})", "g.json"),
                    Catch::Contains("g.json: repetition_penalty must be above 0"));
  CHECK_THROWS_WITH(parse_generation_config(R"({"top_p":"x"})", "g.json"),
                    Catch::Contains("g.json: top_p: must be a number"));
}

TEST_CASE("generation_config.json says how long answers are", "[model][config]") {
  const auto limit = [](const char* json) {
    return parse_generation_config(json, "generation_config.json").max_new_tokens;
  };
  CHECK(limit(R"({"max_new_tokens": 3})") == 3);
  CHECK_FALSE(limit("{}"));
  CHECK_THROWS(limit(R"({"max_new_tokens": 0})"));
}

}  // namespace
}  // namespace quire
