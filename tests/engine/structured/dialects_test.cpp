// Calls and answers that a dialect's constraint allows, drawn token by token from its real masks, are
// what the dialect's parser reads: with markers that are special tokens, and with markers that are text.

#include <catch2/catch.hpp>
#include <boost/json.hpp>
#include <random>

#include "tests/engine/structured/grammars.h"
#include "text/output/output_constraint.h"

namespace quire::structured {
namespace {

namespace json = boost::json;

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "get_weather", "strict": true, "parameters": {
    "type": "object", "required": ["city", "days"], "properties": {
      "city": {"type": "string", "maxLength": 5}, "days": {"type": "integer", "minimum": 1, "maximum": 30},
      "metric": {"type": "boolean"}, "unit": {"type": "string", "enum": ["celsius", "f"]}}}}},
  {"type": "function", "function": {"name": "get_time"}}])";

constexpr const char* kEnd = "<|end of answer|>";

std::vector<std::string> markers_of(const Dialect& dialect, const ReasoningFormat* reasoning) {
  std::vector<std::string> markers = dialect.markers();
  if (reasoning != nullptr) {
    for (const std::string& marker : reasoning->markers()) markers.push_back(marker);
  }
  markers.push_back("\n");
  return markers;
}

// All bytes, some pieces, and the markers: special tokens where these are asked for.
GrammarContext context_of(const Dialect& dialect, const ReasoningFormat* reasoning, bool special) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 255; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  for (const char* piece : {"get_", "\": ", "{\"", "functions.", "true", "</", "=\"", "'>", "\n\n"}) {
    bytes.emplace_back(piece);
  }
  for (const std::string& marker : markers_of(dialect, reasoning)) {
    // Only what looks like one token; the families' lines of text never are.
    const bool whole = marker.find_first_of("<[") == 0 && marker.find_first_of("> ]") == marker.size() - 1;
    const bool known = std::ranges::count(bytes, Vocabulary::kSpecial + marker) > 0;
    if (special && whole && !known) bytes.push_back(Vocabulary::kSpecial + marker);
  }
  bytes.push_back(Vocabulary::kSpecial + std::string(kEnd));
  GrammarContext context;
  const auto end = static_cast<TokenId>(bytes.size() - 1);
  context.vocabulary =
      std::make_shared<const Vocabulary>(std::move(bytes), std::vector<TokenId>{end});
  return context;
}

// Draws until the end; what may be long is kept short by taking markers and closing bytes first,
// often. Empty: no end in sight.
struct Drawn {
  std::string text;
  bool used_special = false;
};
std::optional<Drawn> draw(const std::shared_ptr<CompiledGrammar>& grammar,
                          const GrammarContext& context, std::mt19937& random,
                          const std::vector<std::string>& markers) {
  GrammarMatcher matcher(grammar);
  const Vocabulary& vocabulary = *context.vocabulary;
  Drawn drawn;
  for (int step = 0; step < 4'000; ++step) {
    if (const std::string& marker = markers[random() % markers.size()];
        random() % 4 == 0 && matcher.accept_bytes(marker)) {
      drawn.text += marker;
      continue;
    }
    const std::vector<TokenId> may = allowed(matcher, context);
    REQUIRE_FALSE(may.empty());
    std::vector<TokenId> wanted, closing;
    for (const TokenId id : may) {
      const std::string& bytes = vocabulary.bytes(id);
      if (bytes.front() == Vocabulary::kSpecial) wanted.push_back(id);
      if (std::string("\"}])<\n").find(bytes.front()) != std::string::npos) closing.push_back(id);
    }
    const auto& from = !wanted.empty() && random() % 2 ? wanted
                       : !closing.empty() && random() % 2 ? closing
                                                          : may;
    const TokenId id = from[random() % from.size()];
    REQUIRE(matcher.accept(id));
    if (matcher.finished()) return drawn;
    const std::string& bytes = vocabulary.bytes(id);
    const bool is_special = bytes.front() == Vocabulary::kSpecial;
    drawn.used_special |= is_special;
    drawn.text += is_special ? bytes.substr(1) : bytes;
  }
  return std::nullopt;
}

struct Read {
  OutputDelta all;
  std::vector<std::pair<std::string, std::string>> calls;
};
Read read(const OutputFormat& format, const std::string& text) {
  OutputParser parser(format);
  Read read;
  for (OutputDelta delta : {parser.push(text), parser.finish()}) {
    read.all.content += delta.content;
    read.all.reasoning += delta.reasoning;
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (call.name) read.calls.emplace_back(*call.name, "");
      if (!read.calls.empty()) read.calls.back().second += call.arguments;
    }
  }
  return read;
}

void check_call(const std::string& name, const std::string& arguments) {
  INFO(name << " " << arguments);
  boost::system::error_code error;
  const json::value value = json::parse(arguments, error);
  REQUIRE_FALSE(error);
  REQUIRE(value.is_object());
  if (name == "get_time") return;
  REQUIRE(name == "get_weather");
  const json::object& object = value.get_object();
  REQUIRE(object.contains("city"));
  CHECK(object.at("city").is_string());
  REQUIRE(object.contains("days"));
  const auto days = object.at("days").to_number<int>();
  CHECK((days >= 1 && days <= 30));
  if (const auto* unit = object.if_contains("unit")) CHECK((*unit == "celsius" || *unit == "f"));
  if (const auto* metric = object.if_contains("metric")) CHECK(metric->is_bool());
}

OutputFormat format_of(const Dialect& dialect, const ReasoningFormat* reasoning, bool inside) {
  OutputFormat format{.dialect = &dialect, .reasoning = reasoning, .starts_inside = inside};
  format.types = std::make_shared<const ToolTypes>(kTools);
  return format;
}

TEST_CASE("drawn calls are calls that fit, in every dialect", "[structured][dialects]") {
  std::mt19937 random(7);
  for (const Dialect& dialect : dialects()) {
    const auto* reasoning = find_reasoning_format(dialect.channels ? "harmony" : "think");
    for (const bool special : {false, true}) {
      const GrammarContext context = context_of(dialect, reasoning, special);
      for (const auto demand : {CallDemand::required, CallDemand::automatic}) {
        const bool inside = !dialect.channels && random() % 2 == 0;
        const OutputFormat format = format_of(dialect, reasoning, inside);
        const std::string tag = output_constraint(format, {.calls = demand, .tools = kTools});
        const auto made = grammar(GrammarSpec::Kind::structural_tag, tag, context);
        int ended = 0, called = 0;
        for (int round = 0; round < 24; ++round) {
          const auto drawn = draw(made, context, random, markers_of(dialect, reasoning));
          if (!drawn) continue;
          ++ended;
          INFO(dialect.name << (special ? " special: " : " text: ") << drawn->text);
          const Read got = read(format, drawn->text);
          called += got.calls.empty() ? 0 : 1;
          for (const auto& [name, arguments] : got.calls) check_call(name, arguments);
          if (demand == CallDemand::automatic) continue;
          CHECK_FALSE(got.calls.empty());
          CHECK(got.all.content.empty());
        }
        INFO(dialect.name);
        CHECK(ended >= 2);
        if (demand == CallDemand::required) CHECK(called == ended);
      }
    }
  }
}

TEST_CASE("at most one call", "[structured][dialects]") {
  std::mt19937 random(11);
  for (const Dialect& dialect : dialects()) {
    const GrammarContext context = context_of(dialect, nullptr, true);
    const OutputFormat format = format_of(dialect, nullptr, false);
    for (const auto demand : {CallDemand::required, CallDemand::automatic}) {
      const auto made = grammar(
          GrammarSpec::Kind::structural_tag,
          output_constraint(format, {.calls = demand, .tools = kTools, .parallel = false}), context);
      for (int round = 0; round < 8; ++round) {
        const auto drawn = draw(made, context, random, markers_of(dialect, nullptr));
        if (!drawn) continue;
        INFO(dialect.name << " " << drawn->text);
        CHECK(read(format, drawn->text).calls.size() <= 1);
      }
    }
  }
}

TEST_CASE("an answer's schema holds after the thought, in every family", "[structured][dialects]") {
  std::mt19937 random(5);
  for (const ReasoningFormat& reasoning : reasoning_formats()) {
    for (const bool inside : {false, true}) {
      const OutputFormat format{.reasoning = &reasoning,
                                .starts_inside = inside && !reasoning.channels};
      const GrammarContext context = context_of(dialects().front(), &reasoning, true);
      const auto made = grammar(
          GrammarSpec::Kind::structural_tag,
          output_constraint(
              format,
              {.answer = R"({"type":"json_schema","json_schema":{"enum":[{"a":[1,true]},null]}})"}),
          context);
      int ended = 0;
      for (int round = 0; round < 12; ++round) {
        const auto drawn = draw(made, context, random, markers_of(dialects().front(), &reasoning));
        if (!drawn) continue;
        ++ended;
        INFO(reasoning.name << " " << drawn->text);
        const Read got = read(format, drawn->text);
        boost::system::error_code error;
        const auto last = got.all.content.find_last_of("l}");
        REQUIRE(last != std::string::npos);
        const json::value value = json::parse(got.all.content, error);
        REQUIRE_FALSE(error);
        CHECK((value.is_null() || value.is_object()));
      }
      CHECK(ended >= 3);
    }
  }
}

TEST_CASE("special tokens come where the grammar names them, and nowhere else",
          "[structured][dialects]") {
  GrammarContext context;
  std::vector<std::string> bytes = {"a", "<", "x", ">", "\xff<x>", "\xff<y>", "\xff<e>"};
  context.vocabulary = std::make_shared<const Vocabulary>(bytes, std::vector<TokenId>{6});
  const auto kind = GrammarSpec::Kind::structural_tag;
  const auto tag = grammar(kind,
                           R"({"format":{"type":"tag","begin":"<x>","end":"<e>",)"
                           R"("content":{"type":"regex","pattern":"a"}}})",
                           context);
  GrammarMatcher matcher(tag);
  CHECK(allowed(matcher, context) == std::vector<TokenId>{1, 4});
  REQUIRE(matcher.accept(4));
  REQUIRE(matcher.accept(0));
  CHECK(allowed(matcher, context) == std::vector<TokenId>{1, 6});  // the end token is the tag's end
  REQUIRE(matcher.accept(6));
  CHECK(matcher.complete());
  GrammarMatcher text(grammar(kind, R"({"format":{"type":"any_text"}})", context));
  CHECK(allowed(text, context) == std::vector<TokenId>{0, 1, 2, 3, 6});
  GrammarMatcher tokens(
      grammar(kind, R"({"format":{"type":"any_text","text":"tokens"}})", context));
  CHECK(allowed(tokens, context) == std::vector<TokenId>{0, 1, 2, 3, 4, 5, 6});
}

}  // namespace
}  // namespace quire::structured
