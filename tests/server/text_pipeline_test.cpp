#include "server/text_pipeline.h"

#include <catch2/catch.hpp>

#include "openapi/dto_json.h"

using namespace quire;

namespace {

TextPipeline pipeline(const std::string& chat_template, const char* reasoning, const char* dialect = nullptr) {
  TextDefaults defaults;
  if (reasoning != nullptr) defaults.reasoning = find_reasoning_format(reasoning);
  if (dialect != nullptr) defaults.dialect = find_dialect(dialect);
  return {Tokenizer::load("models/quire-tiny"), ChatTemplate::parse(chat_template, {}), defaults};
}

}  // namespace

TEST_CASE("whether a template opens thoughts is known from the start", "[server][text]") {
  const std::string text = "{{ messages[0].content }}A:";
  CHECK(pipeline(text + "{% if enable_thinking %}<think>\n{% endif %}", "think").opens_thought_when_asked());
  CHECK(pipeline(text + "{% if thinking %}<think>{% endif %}", "think").opens_thought_when_asked());
  CHECK_FALSE(pipeline(text, "think").opens_thought_when_asked());
  CHECK_FALSE(pipeline(text + "<think>\n\n</think>\n\n", "think").opens_thought_when_asked());
  CHECK_FALSE(pipeline(text + "{% if enable_thinking %}<think>{% endif %}", nullptr).opens_thought_when_asked());
  // A template that refuses the question opens nothing.
  CHECK_FALSE(pipeline("{{ raise_exception('no') }}", "think").opens_thought_when_asked());
}

TEST_CASE("a template that words pairs is given texts, whatever it has loops over", "[server][text]") {
  TextDefaults defaults;
  defaults.template_was_given = true;
  const TextPipeline text(
      Tokenizer::load("models/quire-tiny"),
      ChatTemplate::parse("{% for m in messages %}<{{ m.content }}>{% for c in m.content %}{% endfor %}{% endfor %}"),
      defaults);
  const auto pair = text.encode_pair("a", "b", 100);
  REQUIRE(pair.has_value());
  CHECK(pair->ids == text.tokenizer().encode("<a><b>", false));
}

TEST_CASE("special tokens within a marker reach the parser", "[server][text]") {
  const auto tokenizer = Tokenizer::load("models/quire-tiny");
  const auto text = pipeline("x", "think", "hermes");
  const auto& shown = text.markup(true);
  for (const char* mark : {"<think>", "</think>", "<tool_call>", "</tool_call>"}) {
    INFO(mark);
    const auto id = tokenizer->token_to_id(mark);
    if (!id || !tokenizer->is_special(*id)) continue;
    CHECK(std::ranges::count(shown, *id) == 1);
  }
  CHECK(std::ranges::is_sorted(shown));
}
