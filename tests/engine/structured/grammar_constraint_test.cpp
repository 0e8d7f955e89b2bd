#include "engine/structured/grammar_constraint.h"

#include <catch2/catch.hpp>
#include <random>

#include "base/error.h"
#include "text/tokenizer/tokenizer.h"

namespace quire::structured {
namespace {

std::shared_ptr<const Tokenizer> tiny() {
  static const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::load("models/quire-tiny");
  return tokenizer;
}

TEST_CASE("a constraint leads a sampler to a whole value and its end", "[structured][constraint]") {
  const auto compile = grammar_compiler(tiny());
  const auto made = compile({ConstraintKind::json_schema,
                             R"({"type":"object","properties":{"n":{"type":"integer","maximum":99,"minimum":0},)"
                             R"("s":{"enum":["x","y"]}},"required":["n","s"]})"},
                            {});
  const TokenId end = *tiny()->token_to_id(tiny()->special_strings().at("eos_token"));
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    const auto constraint = made->start(std::span(&end, 1));
    std::vector<TokenId> ids;
    for (int step = 0; step < 400; ++step) {
      std::vector<std::uint32_t> mask(static_cast<std::size_t>(tiny()->vocab_size() + 31) / 32, ~0u);
      constraint->fill(mask);
      std::vector<TokenId> may;
      for (TokenId id = 0; id < tiny()->vocab_size(); ++id) {
        const std::string bytes = tiny()->token_bytes(id);
        // White space without end is no use here.
        if (bytes.find_first_not_of(" \t\r\n") == std::string::npos && id != end) continue;
        if (mask[static_cast<std::size_t>(id) / 32] >> id % 32 & 1) may.push_back(id);
      }
      REQUIRE_FALSE(may.empty());
      ids.push_back(may[random() % may.size()]);
      REQUIRE(constraint->accept(ids.back()));
      if (ids.back() == end) break;
    }
    REQUIRE(ids.back() == end);
    CHECK(constraint->is_complete());
    const std::string text = tiny()->decode(ids, true);
    INFO(text);
    CHECK(text.front() == '{');
    CHECK(text.back() == '}');
    CHECK(text.find("\"n\"") < text.find("\"s\""));
  }
}

TEST_CASE("a mask keeps what the caller has forbidden", "[structured][constraint]") {
  const auto made = grammar_compiler(tiny())({ConstraintKind::regex, "[a-z]+"}, {});
  const auto constraint = made->start({});
  std::vector<std::uint32_t> mask(100, 0);
  constraint->fill(mask);
  CHECK(std::all_of(mask.begin(), mask.end(), [](std::uint32_t word) { return word == 0; }));
}

TEST_CASE("a bad specification fails with its place, a stopped one soon", "[structured][constraint]") {
  const auto compile = grammar_compiler(tiny());
  try {
    compile({ConstraintKind::json_schema, R"({"items":{"type":"x"}})"}, {});
    FAIL("was taken");
  } catch (const Failure& failure) {
    CHECK(failure.error().code == ErrorCode::invalid_argument);
    CHECK(failure.error().field == "/items/type");
  }
  std::stop_source stop;
  stop.request_stop();
  std::string many = R"({"enum":[0)";
  for (int i = 1; i < 50'000; ++i) many += ',' + std::to_string(i);
  CHECK_THROWS_AS(compile({ConstraintKind::json_schema, many + "]}"}, stop.get_token()), Failure);
}

}  // namespace
}  // namespace quire::structured
