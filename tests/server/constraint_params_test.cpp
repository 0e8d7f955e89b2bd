#include "server/generation/constraint_params.h"

#include <catch2/catch.hpp>

#include "openapi/dto_json.h"
#include "openapi/responses.h"

using namespace quire;

namespace {

openapi::ChatCompletionRequest chat(const std::string& members) {
  auto parsed = openapi::parse_chat_completion(
      R"({"messages":[{"role":"user","content":"Hi"}],)" + members + "}");
  INFO(members);
  REQUIRE(parsed.has_value());
  return *parsed;
}

const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";

OutputFormat hermes() {
  return {.dialect = find_dialect("hermes"), .reasoning = find_reasoning_format("think")};
}

// The constraint's text; empty: there is none.
std::string text(const std::string& members, const OutputFormat& format = hermes()) {
  const auto constraint = chat_constraint(chat(members), format);
  REQUIRE(constraint.has_value());
  return *constraint ? (*constraint)->text : "";
}

bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("what asks for nothing constrains nothing", "[server][constraint]") {
  CHECK(text(R"("response_format":{"type":"text"})").empty());
  CHECK(text(kTools + R"(,"tool_choice":"none")").empty());
  OutputFormat silent = hermes();
  silent.calls = false;
  CHECK(text(kTools, silent).empty());
  CHECK_FALSE(text(kTools).empty());
}

TEST_CASE("a schema travels to the letter, with its place", "[server][constraint]") {
  const std::string made = text(
      R"("response_format":{"type":"json_schema","json_schema":{"schema":{"z":1,"a":0.10,"multipleOf":1e-2}}})");
  CHECK(holds(made, R"("place":"/response_format/json_schema/schema")"));
  CHECK(holds(made, R"("json_schema":{"z":1,"a":0.1)"));
  CHECK(holds(made, "</think>"));
  const std::string regex = text(R"("structured_outputs":{"regex":"a\"\\d"})");
  CHECK(holds(regex, R"("pattern":"a\"\\d")"));
}

TEST_CASE("calls that are demanded name their functions", "[server][constraint]") {
  const std::string required = text(kTools + R"(,"tool_choice":"required")");
  CHECK(holds(required, "{\\\"name\\\": \\\"f\\\""));
  CHECK(holds(required, R"("place": "/tools/0/function/parameters")"));
  CHECK(holds(required, "tags_with_separator"));
  CHECK_FALSE(holds(text(kTools + R"(,"tool_choice":"required","parallel_tool_calls":false)"),
                    "tags_with_separator"));
  // Who names a function wants one call of it.
  CHECK_FALSE(holds(text(kTools + R"(,"tool_choice":{"type":"function","function":{"name":"f"}})"),
                    "tags_with_separator"));
}

TEST_CASE("a function that nothing could be called with is refused with its place",
          "[server][constraint]") {
  const auto refusal = [](const std::string& parameters, const std::string& more) {
    const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function",)"
                              R"("function":{"name":"g","strict":true,"parameters":)" + parameters + "}}]";
    const auto constraint = chat_constraint(chat(tools + more), hermes());
    return constraint ? std::string() : constraint.error().field;
  };
  const std::string required = R"(,"tool_choice":"required")", place = "/tools/1/function/parameters";
  for (const char* bad : {R"({"type":"string"})", R"({"type":["array","null"]})", R"({"enum":[1,"a"]})", R"({"const":3})",
                          R"({"allOf":[{},{"type":"integer"}]})", R"({"anyOf":[{"type":"null"},{"type":"array"}]})",
                          R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"number"}}})"}) {
    INFO(bad);
    CHECK(refusal(bad, required) == place);
    CHECK(refusal(bad, "") == place);
  }
  for (const char* good : {"{}", R"({"type":["object","null"]})", R"({"enum":[1,{}]})",
                           R"({"anyOf":[{"type":"null"},{"type":"object"}]})"}) {
    INFO(good);
    CHECK(refusal(good, required).empty());
  }
}

TEST_CASE("what is rendered holds all that chat demands, but for white space", "[server][constraint]") {
  const auto rendered = rendered_constraint(
      chat(R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"null"}}})"), hermes());
  REQUIRE(rendered.has_value());
  REQUIRE(rendered->has_value());
  CHECK(holds(**rendered, "</think>"));
  CHECK(holds(**rendered, R"("answer": {)"));
  CHECK_FALSE(holds(**rendered, "whitespace"));
  CHECK_FALSE(rendered_constraint(chat(R"("n":1)"), hermes())->has_value());
}

TEST_CASE("who is not to think has no mark of thought to begin with", "[server][constraint]") {
  const auto held = [](bool may_think, bool starts_inside) {
    OutputFormat format = hermes();
    format.starts_inside = starts_inside;
    format.may_think = may_think;
    const auto constraint = chat_constraint(chat(R"("response_format":{"type":"json_object"})"), format);
    return (*constraint)->text;
  };
  CHECK(holds(held(true, false), "<think>"));
  CHECK_FALSE(holds(held(false, false), "think>"));
  CHECK(holds(held(false, true), "</think>"));
}

TEST_CASE("the place of a tool's schema is the one in the client's own request",
          "[server][constraint]") {
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"string"}}})";
  const auto made = [](const openapi::ChatCompletionRequest& request) {
    const auto constraint = chat_constraint(request, hermes());
    REQUIRE(constraint.has_value());
    return (*constraint)->text;
  };
  const auto message = openapi::parse_messages(
      R"({"max_tokens":9,"messages":[{"role":"user","content":"Hi"}],"tool_choice":{"type":"any"},)"
      R"("tools":[{"name":"f","input_schema":)" + schema + "}]}");
  REQUIRE(message.has_value());
  CHECK(holds(made(*message), R"("place": "/tools/0/input_schema")"));
  const auto response = openapi::parse_responses(
      R"({"input":"Hi","tool_choice":"required","tools":[{"type":"function","name":"f","parameters":)" +
      schema + "}]}");
  REQUIRE(response.has_value());
  CHECK(holds(made(*response), R"("place": "/tools/0/parameters")"));
  CHECK(holds(made(*response), R"("not_strict": ["/tools/0/parameters"])"));
}

TEST_CASE("functions that do not ask for strictness are told apart", "[server][constraint]") {
  const std::string tools =
      R"("tool_choice":"required","tools":[{"function":{"name":"f","parameters":{}}},{"function":{"name":"g","strict":true,"parameters":{}}}])";
  CHECK(holds(text(tools), R"("not_strict": ["/tools/0/function/parameters"])"));
}

TEST_CASE("calls may be allowed to some of the tools", "[server][constraint]") {
  const std::string tools =
      R"("tools":[{"function":{"name":"f1"}},{"function":{"name":"f2"}},{"function":{"name":"f3"}}],)"
      R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":)";
  const std::string allowed =
      R"(,"tools":[{"type":"function","function":{"name":"f1"}},{"type":"function","function":{"name":"f3"}}]}})";
  for (const char* mode : {R"("auto")", R"("required")"}) {
    const std::string made = text(tools + mode + allowed);
    CHECK(holds(made, "f1"));
    CHECK(holds(made, "f3"));
    CHECK_FALSE(holds(made, "f2"));
  }
}

TEST_CASE("a thinking budget needs a model that thinks", "[server][constraint]") {
  CHECK(holds(text(R"("thinking_budget":7)"), R"("budget": 7)"));
  const auto refused = chat_constraint(chat(R"("thinking_token_budget":7)"), {});
  REQUIRE(refused.has_error());
  CHECK(refused.error().field == "thinking_token_budget");
}

TEST_CASE("bad words are forbidden at a text's beginning and after a space",
          "[server][constraint]") {
  const auto tokenizer = Tokenizer::load("models/quire-tiny");
  const auto words = bad_words({"Oslo", " weather"}, *tokenizer);
  REQUIRE(words.has_value());
  std::vector<std::vector<TokenId>> all;
  for (const TokenWord& word : *words) all.push_back(word.tokens);
  for (const char* word : {"Oslo", "weather"}) {
    const auto bare = tokenizer->encode(word, false);
    const auto spaced = tokenizer->encode(std::string(" ") + word, false);
    CHECK(std::count(all.begin(), all.end(), bare) == 1);
    const bool differs = spaced.size() == bare.size() && spaced.front() != bare.front();
    CHECK(std::count(all.begin(), all.end(), spaced) == (differs ? 1 : 0));
  }
}
