#include "text/output/output_parser.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

using quire::OutputDelta;
using quire::OutputParser;
using quire::OutputParserOptions;

struct Call {
  std::string name;
  std::string arguments;
  bool operator==(const Call&) const = default;
};

struct Parsed {
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;
  bool operator==(const Parsed&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Parsed& parsed) {
  out << "reasoning [" << parsed.reasoning << "] content [" << parsed.content << "]";
  for (const Call& call : parsed.calls)
    out << " call " << call.name << "(" << call.arguments << ")";
  return out;
}

// As a client adds up what it is sent; checks that ids and names come once and first.
void add(Parsed& parsed, const OutputDelta& delta) {
  parsed.reasoning += delta.reasoning;
  parsed.content += delta.content;
  for (const auto& call : delta.tool_calls) {
    if (std::size_t(call.index) == parsed.calls.size()) {
      REQUIRE(call.id.has_value());
      REQUIRE(call.id->starts_with("chatcmpl-tool-"));
      REQUIRE(call.name.has_value());
      parsed.calls.push_back({*call.name, ""});
    } else {
      REQUIRE(std::size_t(call.index) + 1 == parsed.calls.size());
      REQUIRE_FALSE(call.id.has_value());
      REQUIRE_FALSE(call.name.has_value());
      REQUIRE_FALSE(call.arguments.empty());
    }
    parsed.calls.back().arguments += call.arguments;
  }
}

Parsed parse(const OutputParserOptions& options, const std::vector<std::string_view>& pieces) {
  OutputParser parser(options);
  Parsed parsed;
  for (std::string_view piece : pieces) add(parsed, parser.push(piece));
  add(parsed, parser.finish());
  CHECK(parser.num_tool_calls() == int(parsed.calls.size()));
  return parsed;
}

constexpr OutputParserOptions kThinking{.reasoning = true, .starts_inside = true};
constexpr OutputParserOptions kMayThink{.reasoning = true, .starts_inside = false};
constexpr OutputParserOptions kTools{.tools = true};
constexpr OutputParserOptions kWholeTools{.tools = true, .whole_calls = true};
constexpr OutputParserOptions kBoth{.reasoning = true, .starts_inside = true, .tools = true};

struct Case {
  const char* name;
  OutputParserOptions options;
  std::string text;
  Parsed expected;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"nothing to look for",
       {},
       "<think>a</think> <tool_call>{}",
       {"", "<think>a</think> <tool_call>{}", {}}},
      {"nothing at all", kBoth, "", {"", "", {}}},

      {"thinks, then answers",
       kThinking,
       "12 + 7 = 19\n</think>\n\n19.",
       {"12 + 7 = 19", "19.", {}}},
      {"opens the marker once more", kThinking, "<think>\nso\n</think>\nyes", {"so", "yes", {}}},
      {"never stops thinking", kThinking, "and so on </thi", {"and so on </thi", "", {}}},
      {"thinks of nothing", kThinking, "\n\n</think>\n\nHi", {"", "Hi", {}}},
      {"thinks only", kThinking, "hm</think>", {"hm", "", {}}},
      {"keeps space inside", kThinking, "a \n b</think>c \n d\n", {"a \n b", "c \n d\n", {}}},
      {"looks like a marker",
       kThinking,
       "a </ think> < /think></think>b",
       {"a </ think> < /think>", "b", {}}},
      {"a second block is content",
       kThinking,
       "a</think>b<think>c</think>",
       {"a", "b<think>c</think>", {}}},
      {"does not think", kMayThink, "\n19 </think>", {"", "\n19 </think>", {}}},
      {"thinks unasked", kMayThink, " <think>hm</think> 19", {"hm", "19", {}}},
      {"almost a marker", kMayThink, "<thin", {"", "<thin", {}}},

      {"one call",
       kTools,
       "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
       {"", "", {{"get_time", "{\"city\": \"Oslo\"}"}}}},
      {"text around calls",
       kTools,
       "Let me see.\n<tool_call>\n{\"name\": \"a\", \"arguments\": "
       "{}}\n</tool_call>\n<tool_call>{\"name\": \"b\", "
       "\"arguments\": {\"x\": [1, {\"y\": null}]}}</tool_call>\n Done.\n",
       {"", "Let me see.\n\n\n Done.", {{"a", "{}"}, {"b", "{\"x\": [1, {\"y\": null}]}"}}}},
      {"exact arguments",
       kTools,
       "<tool_call>{\"name\":\"f\",\"arguments\":{ \"a\" :1.50,\"b\":\"\\u00e9 } </tool_call> "
       "\\\"\"\n}}</tool_call>",
       {"", "", {{"f", "{ \"a\" :1.50,\"b\":\"\\u00e9 } </tool_call> \\\"\"\n}"}}}},
      {"arguments first",
       kTools,
       "<tool_call>{\"arguments\": {\"a\": true}, \"name\": \"f\", \"id\": 7}</tool_call>",
       {"", "", {{"f", "{\"a\": true}"}}}},
      {"arguments as a text",
       kTools,
       "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
       {"", "", {{"f", "{\"a\": 1}"}}}},
      {"no arguments", kTools, "<tool_call>{\"name\": \"f\"}</tool_call>", {"", "", {{"f", "{}"}}}},
      {"an escaped name",
       kTools,
       "<tool_call>{\"name\": \"\\u0066\", \"arguments\": {}}</tool_call>",
       {"", "", {{"f", "{}"}}}},
      {"no end marker",
       kTools,
       "<tool_call>{\"name\": \"f\", \"arguments\": {}}",
       {"", "", {{"f", "{}"}}}},
      {"no end marker between calls",
       kTools,
       "<tool_call>{\"name\": \"f\"}\n<tool_call>{\"name\": \"g\"}</tool_call>",
       {"", "", {{"f", "{}"}, {"g", "{}"}}}},
      {"not JSON",
       kTools,
       "a <tool_call>\nf(1)\n</tool_call> b",
       {"", "a <tool_call>\nf(1)\n</tool_call> b", {}}},
      {"no name",
       kTools,
       "<tool_call>{\"arguments\": {}}</tool_call>",
       {"", "<tool_call>{\"arguments\": {}}</tool_call>", {}}},
      {"a name that is no text",
       kTools,
       "<tool_call>{\"name\": 5, \"arguments\": {\"a\": 1}}</tool_call>",
       {"", "<tool_call>{\"name\": 5, \"arguments\": {\"a\": 1}}</tool_call>", {}}},
      {"two names",
       kTools,
       "<tool_call>{\"name\": \"f\", \"name\": \"g\"}",
       {"", "<tool_call>{\"name\": \"f\", \"name\": \"g\"}", {}}},
      {"cut off before the arguments",
       kTools,
       "<tool_call>\n{\"name\": \"f\", \"argu",
       {"", "<tool_call>\n{\"name\": \"f\", \"argu", {}}},
      {"cut off in the arguments",
       kTools,
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b",
       {"", "", {{"f", "{\"a\": \"b"}}}},
      {"broken in the arguments",
       kTools,
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": oops}}</tool_call> b",
       {"", "oops}}</tool_call> b", {{"f", "{\"a\": "}}}},
      {"cut off, whole calls only",
       kWholeTools,
       "x <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b",
       {"", "x <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b", {}}},
      {"broken, whole calls only",
       kWholeTools,
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": "
       "oops}}</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>",
       {"",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": oops}}</tool_call>",
        {{"g", "{}"}}}},
      {"half a marker at the end", kTools, "a < b <tool_ca", {"", "a < b <tool_ca", {}}},
      {"space alone", kTools, " \n ", {"", " \n ", {}}},

      {"thinks, speaks, calls",
       kBoth,
       "look it up\n</think>\n\nOne moment.\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
       "{}}\n</tool_call>",
       {"look it up", "One moment.", {{"f", "{}"}}}},
      {"calls in thought are thoughts",
       kBoth,
       "<tool_call>{\"name\": \"f\"}</tool_call></think>no",
       {"<tool_call>{\"name\": \"f\"}</tool_call>", "no", {}}},
  };
  return kCases;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (std::size_t i = 0; i < text.size(); ++i) pieces.push_back(text.substr(i, 1));
  return pieces;
}

}  // namespace

TEST_CASE("an answer is split into reasoning, content and calls", "[text][output]") {
  for (const Case& c : cases()) {
    INFO(c.name);
    CHECK(parse(c.options, {c.text}) == c.expected);
  }
}

TEST_CASE("every cut of an answer gives the same in sum", "[text][output]") {
  std::mt19937 random(7);
  for (const Case& c : cases()) {
    INFO(c.name);
    const std::string_view text = c.text;
    CHECK(parse(c.options, characters(text)) == c.expected);
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
      CHECK(parse(c.options, {text.substr(0, cut), text.substr(cut)}) == c.expected);
    }
    for (int round = 0; round < 50; ++round) {
      std::vector<std::string_view> pieces;
      for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t size = 1 + random() % 12;
        pieces.push_back(text.substr(begin, size));
        begin += size;
      }
      CHECK(parse(c.options, pieces) == c.expected);
    }
  }
}

TEST_CASE("answers made of pieces of markers and JSON come apart alike at every cut",
          "[text][output][fuzz]") {
  static constexpr std::string_view kPieces[] = {"<think>",
                                                 "</think>",
                                                 "<tool_call>",
                                                 "</tool_call>",
                                                 "{\"name\": \"f\", ",
                                                 "\"arguments\": ",
                                                 "{\"a\": 1",
                                                 "}",
                                                 "}}",
                                                 "\n",
                                                 " ",
                                                 "\"",
                                                 "\\",
                                                 "[",
                                                 "]",
                                                 ",",
                                                 "<",
                                                 "tool_call>",
                                                 "x",
                                                 "é",
                                                 "null",
                                                 "-1e5",
                                                 "{",
                                                 "\"name\": \"g\"",
                                                 ":"};
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    const auto length = random() % 14;
    for (unsigned i = 0; i < length; ++i) text += kPieces[random() % std::size(kPieces)];
    const OutputParserOptions options{random() % 2 == 0, random() % 2 == 0, random() % 4 > 0,
                                      random() % 2 == 0};
    INFO(text);
    const Parsed whole = parse(options, {text});
    CHECK(parse(options, characters(text)) == whole);
    const std::size_t cut = text.empty() ? 0 : random() % text.size();
    CHECK(parse(options, {std::string_view(text).substr(0, cut),
                          std::string_view(text).substr(cut)}) == whole);
  }
}

TEST_CASE("arguments are streamed while they are written", "[text][output]") {
  OutputParser parser(kTools);
  CHECK(parser.push("<tool_call>\n{\"name\": \"write\", \"argum").empty());
  const OutputDelta first = parser.push("ents\": {\"text\": \"Once ");
  REQUIRE(first.tool_calls.size() == 1);
  CHECK(first.tool_calls[0].name == "write");
  CHECK(first.tool_calls[0].arguments == "{\"text\": \"Once ");
  const OutputDelta second = parser.push("upon a time");
  REQUIRE(second.tool_calls.size() == 1);
  CHECK(second.tool_calls[0].arguments == "upon a time");
}

TEST_CASE("text is given as soon as it cannot be a marker", "[text][output]") {
  OutputParser parser(kBoth);
  CHECK(parser.push("I think").reasoning == "I think");
  CHECK(parser.push(" so").reasoning == " so");
  CHECK(parser.push("</thi").empty());
  CHECK(parser.push("nk>\n\nNo").content == "No");
  CHECK(parser.push("w <tool").content == "w");
  CHECK(parser.push("box").content == " <toolbox");
}

TEST_CASE("two calls have two ids", "[text][output]") {
  OutputParser parser(kTools);
  const OutputDelta delta = parser.push(
      "<tool_call>{\"name\": \"f\"}</tool_call><tool_call>{\"name\": \"f\"}</tool_call>");
  REQUIRE(delta.tool_calls.size() == 2);
  CHECK(delta.tool_calls[0].id != delta.tool_calls[1].id);
}

TEST_CASE("long answers take time in proportion", "[text][output]") {
  OutputParser parser(kWholeTools);
  parser.push("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"");
  for (int i = 0; i < 200'000; ++i) CHECK(parser.push("abcd").empty());
  const OutputDelta delta = parser.push("\"}}</tool_call>");
  REQUIRE(delta.tool_calls.size() == 1);
  CHECK(delta.tool_calls[0].arguments.size() == 800'000 + 9);
}
