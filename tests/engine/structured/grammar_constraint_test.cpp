#include "engine/structured/grammar_constraint.h"

#include <catch2/catch.hpp>
#include <random>

#include "base/error.h"
#include "engine/structured/compiled_grammar.h"
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

TEST_CASE("a document in a document has an answer of its own", "[structured][constraint]") {
  const auto inner = [](const char* answer) {
    return std::string(R"({"type":"structural_tag","structural_tag":{"format":{"type":"sequence","elements":[)"
                       R"({"type":"const_string","value":"x"},{"type":"answer"}]},"answer":)") + answer + "}}";
  };
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::structural_tag;
  spec.source = R"({"format":{"type":"answer"},"answer":)" +
                inner(R"({"type":"regex","pattern":"[0-9]"})") + "}";
  const auto takes = [&](std::string_view text) {
    GrammarMatcher matcher(CompiledGrammar::compile(spec, {}));
    return matcher.accept_bytes(text) && matcher.complete();
  };
  CHECK(takes("x7"));
  CHECK_FALSE(takes("7"));
  CHECK_FALSE(takes("xx"));
}

TEST_CASE("what is forced is written as the model would", "[structured][constraint]") {
  const auto made = grammar_compiler(tiny())(
      {ConstraintKind::regex, "\\{\"name of the place\":\"[a-z]{2}\"\\}"}, {});
  const auto constraint = made->start({});
  const auto forced = constraint->forced_tokens(8);
  REQUIRE(forced.size() > 1);
  const std::string text = tiny()->decode(forced, false);
  CHECK(std::string("{\"name of the place\":\"").starts_with(text));
  CHECK(constraint->forced_tokens(1).size() == 1);
  for (const TokenId token : forced) REQUIRE(constraint->accept(token));
  CHECK(grammar_compiler(tiny())({ConstraintKind::regex, "[a-z]+"}, {})->start({})->forced_tokens(8).empty());
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
  const auto place = [&](const std::string& answer) {
    const std::string tag = R"({"format":{"type":"answer"},"answer":)" + answer + "}";
    try {
      compile({ConstraintKind::structural_tag, tag}, {});
      return std::string("was taken");
    } catch (const Failure& failure) {
      return failure.error().field;
    }
  };
  CHECK(place(R"({"type":"json_schema","place":"/guided_json","json_schema":false})") == "/guided_json");
  CHECK(place(R"({"type":"json_schema","place":"/x","json_schema":{"type":"object","required":["a"],"properties":{"a":false}}})") ==
        "/x/properties/a");
  CHECK(place(R"({"type":"grammar","place":"/guided_grammar","grammar":"root ::= root \"a\""})") ==
        "/guided_grammar");
  std::stop_source stop;
  stop.request_stop();
  std::string many = R"({"enum":[0)";
  for (int i = 1; i < 50'000; ++i) many += ',' + std::to_string(i);
  CHECK_THROWS_AS(compile({ConstraintKind::json_schema, many + "]}"}, {.stop = stop.get_token()}), Failure);
}

}  // namespace
}  // namespace quire::structured
