#include "text/output/output_parser.h"

#include <catch2/catch.hpp>

#include "tests/text/output_case.h"

using namespace quire;
using namespace quire::test;

namespace {

OutputFormat of(const char* dialect, const char* reasoning = nullptr, bool starts_inside = false) {
  OutputFormat format;
  if (dialect != nullptr) format.dialect = find_dialect(dialect);
  if (reasoning != nullptr) format.reasoning = find_reasoning_format(reasoning);
  format.starts_inside = starts_inside;
  return format;
}

OutputFormat typed(const char* dialect, const char* properties) {
  OutputFormat format = of(dialect);
  format.types = std::make_shared<const ToolTypes>(
      std::string(R"([{"type":"function","function":{"name":"f","parameters":{"properties":)") +
      properties + R"(,"$defs":{"Point":{"type":"object"}}}}}])");
  return format;
}

struct Case {
  Case(const char* name, OutputFormat format, std::string text, Parsed expected)
      : name(name),
        format(std::move(format)),
        text(std::move(text)),
        expected(std::move(expected)) {}
  const char* name;
  OutputFormat format;
  std::string text;
  Parsed expected;
};

const OutputFormat kThinking = of(nullptr, "think", true);
const OutputFormat kMayThink = of(nullptr, "think");
const OutputFormat kNoThought = [] {
  OutputFormat format = kMayThink;
  format.may_think = false;
  return format;
}();
const OutputFormat kTools = of("hermes");
const OutputFormat kBoth = of("hermes", "think", true);

void check(std::initializer_list<Case> cases) {
  for (const Case& c : cases) {
    INFO(c.name);
    CHECK(parse(c.format, {c.text}) == c.expected);
    CHECK(parse(c.format, characters(c.text)) == c.expected);
    const std::string_view text = c.text;
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
      if (parse(c.format, {text.substr(0, cut), text.substr(cut)}) != c.expected) FAIL(cut);
    }
  }
}

std::string qwen_call(const std::string& value) {
  return "<tool_call>\n<function=f>\n<parameter=x>\n" + value +
         "\n</parameter>\n</function>\n</tool_call>";
}

}  // namespace

TEST_CASE("reasoning is split from the answer", "[text][output]") {
  check({
      {"nothing to look for",
       {},
       "<think>a</think> <tool_call>{}",
       {"", "<think>a</think> <tool_call>{}", {}, ""}},
      {"nothing at all", kBoth, "", {}},
      {"thinks, then answers",
       kThinking,
       "12 + 7 = 19\n</think>\n\n19.",
       {"12 + 7 = 19", "19.", {}, ""}},
      {"opens the marker once more",
       kThinking,
       "<think>\nso\n</think>\nyes",
       {"so", "yes", {}, ""}},
      {"never stops thinking", kThinking, "and so on </thi", {"and so on </thi", "", {}, ""}},
      {"thinks of nothing", kThinking, "\n\n</think>\n\nHi", {"", "Hi", {}, ""}},
      {"keeps space inside", kThinking, "a \n b</think>c \n d\n", {"a \n b", "c \n d\n", {}, ""}},
      {"a second block is content",
       kThinking,
       "a</think>b<think>c</think>",
       {"a", "b<think>c</think>", {}, ""}},
      {"does not think", kMayThink, "\n19 </think>", {"", "\n19 </think>", {}, ""}},
      {"thinks unasked", kMayThink, " <think>hm</think> 19", {"hm", "19", {}, ""}},
      {"is not to think", kNoThought, "<think>hm</think> 19", {"", "<think>hm</think> 19", {}, ""}},
      {"almost a marker", kMayThink, "<thin", {"", "<thin", {}, ""}},
      {"Granite's other words",
       of("granite", "granite"),
       "Here's my thought process: hm Here's my response: yes",
       {"hm", "yes", {}, ""}},
      {"Granite says something else",
       of("granite", "granite"),
       "Here is my thought: no",
       {"", "Here is my thought: no", {}, ""}},
      {"an answer in tags",
       of("hunyuan_a13b", "hunyuan_a13b"),
       "<think>\nhm\n</think>\n<answer>\nyes\n</answer>",
       {"hm", "yes", {}, ""}},
  });
}

TEST_CASE("Hermes' calls, whole, broken and cut off", "[text][output]") {
  check({
      {"text around calls",
       kTools,
       "Let me see.\n<tool_call>\n{\"name\": \"a\", \"arguments\": "
       "{}}\n</tool_call>\n<tool_call>{\"name\": \"b\", "
       "\"arguments\": {\"x\": [1, {\"y\": null}]}}</tool_call>\n Done.",
       {"", "Let me see.\n\n\n Done.", {{"a", "{}"}, {"b", "{\"x\": [1, {\"y\": null}]}"}}, ""}},
      {"exact arguments",
       kTools,
       "<tool_call>{\"name\":\"f\",\"arguments\":{ \"a\" :1.50,\"b\":\"\\u00e9 } </tool_call> "
       "\\\"\"\n}}</tool_call>",
       {"", "", {{"f", "{ \"a\" :1.50,\"b\":\"\\u00e9 } </tool_call> \\\"\"\n}"}}, ""}},
      {"arguments first",
       kTools,
       "<tool_call>{\"arguments\": {\"a\": true}, \"name\": \"f\", \"id\": 7}</tool_call>",
       {"", "", {{"f", "{\"a\": true}"}}, ""}},
      {"arguments as a text",
       kTools,
       "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
       {"", "", {{"f", "{\"a\": 1}"}}, ""}},
      {"no arguments",
       kTools,
       "<tool_call>{\"name\": \"f\"}</tool_call>",
       {"", "", {{"f", "{}"}}, ""}},
      {"an escaped name",
       kTools,
       "<tool_call>{\"name\": \"\\u0066\", \"arguments\": {}}</tool_call>",
       {"", "", {{"f", "{}"}}, ""}},
      {"no end marker between calls",
       kTools,
       "<tool_call>{\"name\": \"f\"}\n<tool_call>{\"name\": \"g\"}</tool_call>",
       {"", "", {{"f", "{}"}, {"g", "{}"}}, ""}},
      {"not JSON",
       kTools,
       "a <tool_call>\nf(1)\n</tool_call> b",
       {"", "a <tool_call>\nf(1)\n</tool_call> b", {}, ""}},
      {"a name that is no text",
       kTools,
       "<tool_call>{\"name\": 5, \"arguments\": {\"a\": 1}}</tool_call>",
       {"", "<tool_call>{\"name\": 5, \"arguments\": {\"a\": 1}}</tool_call>", {}, ""}},
      {"two names",
       kTools,
       "<tool_call>{\"name\": \"f\", \"name\": \"g\"}",
       {"", "<tool_call>{\"name\": \"f\", \"name\": \"g\"}", {}, ""}},
      {"cut off before the arguments",
       kTools,
       "<tool_call>\n{\"name\": \"f\", \"argu",
       {"", "<tool_call>\n{\"name\": \"f\", \"argu", {}, ""}},
      {"cut off in the arguments",
       kTools,
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"b",
       {"", "", {{"f", "{\"a\": \"b"}}, ""}},
      {"broken in the arguments",
       kTools,
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": oops}}</tool_call> b",
       {"", "oops}}</tool_call> b", {{"f", "{\"a\": "}}, ""}},
      {"half a marker at the end", kTools, "a < b <tool_ca", {"", "a < b <tool_ca", {}, ""}},
      {"a marker in prose, then a call",
       kTools,
       "Use `<tool_call>`: <tool_call><tool_call>{\"name\": \"f\"}</tool_call>",
       {"", "Use `<tool_call>`: <tool_call>", {{"f", "{}"}}, ""}},
      {"thinks, speaks, calls",
       kBoth,
       "look it up\n</think>\n\nOne moment.\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
       "{}}\n</tool_call>",
       {"look it up", "One moment.", {{"f", "{}"}}, ""}},
  });
}

TEST_CASE("an answer in JSON or in brackets is no call", "[text][output]") {
  check({
      {"another object", of("llama3_json"), "{\"a\": 1}", {"", "{\"a\": 1}", {}, ""}},
      {"a person",
       of("llama3_json"),
       "{\"name\": \"Ann\", \"age\": 3}",
       {"", "{\"name\": \"Ann\", \"age\": 3}", {}, ""}},
      {"a name alone",
       of("llama3_json"),
       "{\"name\": \"Ann\"}",
       {"", "{\"name\": \"Ann\"}", {}, ""}},
      {"with a type",
       of("llama3_json"),
       "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}",
       {"", "", {{"f", "{}"}}, ""}},
      {"a link", of("pythonic"), "[see](http://x.y)", {"", "[see](http://x.y)", {}, ""}},
      {"a name in place of a value", of("pythonic"), "[f(a=b)] ok", {"", "b)] ok", {{"f", "{\"a\": "}}, ""}},
      {"a position behind names", of("pythonic"), "[f(a='x', y)] ok", {"", ", y)] ok", {{"f", "{\"a\": \"x\""}}, ""}},
      {"a name in a list", of("pythonic"), "[f(a=[1, b])]", {"", "b])]", {{"f", "{\"a\": [1, "}}, ""}},
      {"no escape", of("pythonic"), "[f(a='x\\xZ')]", {"", "\\xZ')]", {{"f", "{\"a\": \"x"}}, ""}},
      {"a call with a position", of("pythonic"), "[f(1)]", {"", "[f(1)]", {}, ""}},
      {"not at the beginning", of("pythonic"), "So [f(x=1)]", {"", "So [f(x=1)]", {}, ""}},
      {"after a thought",
       of("pythonic", "think"),
       "<think>hm</think>\n[f(x=1)]",
       {"hm", "", {{"f", "{\"x\": 1}"}}, ""}},
  });
}

TEST_CASE("Python's literals become JSON", "[text][output]") {
  const auto value = [](const std::string& literal) {
    const Parsed parsed = parse(of("pythonic"), characters("[f(x=" + literal + ")]"));
    return parsed.calls.empty() ? "none" : parsed.calls[0].arguments;
  };
  const auto as = [](const std::string& json) { return "{\"x\": " + json + "}"; };
  CHECK(value("-3") == as("-3"));
  CHECK(value("+1_000") == as("1000"));
  CHECK(value("1.") == as("1.0"));
  CHECK(value("-.5e3") == as("-0.5e3"));
  CHECK(value("[True, False, None, true, null]") == as("[true, false, null, true, null]"));
  CHECK(value("(1, 'a',)") == as("[1, \"a\"]"));
  CHECK(value("{'a': {}, \"b\": [], 3: {'c': {'d': ''}}}") ==
        as("{\"a\": {}, \"b\": [], \"3\": {\"c\": {\"d\": \"\"}}}"));
  CHECK(value("'it\\'s \"so\" \\x41\\u00e9\\U0001F600\\101\\n\\q'") ==
        as("\"it's \\\"so\\\" Aé😀A\\n\\\\q\""));
  CHECK(value("'''a 'b' ''c'''") == as("\"a 'b' ''c\""));
  CHECK(value("\"\"\"\"\"\"") == as("\"\""));
  CHECK(value("r'\\d'") == as("\"\\\\d\""));
  CHECK(value("'\\ud83d\\ude00'") == as("\"\\ud83d\\ude00\""));
  for (const char* bad :
       {"", "x", "1 2", "1-2", "0x1F", "b'a'", "{1, 2}", "f'a'", "'\\N{DASH}'", "'''a''''"}) {
    INFO(bad);
    CHECK((value(bad) == "none" || !value(bad).ends_with('}')));
  }
}

TEST_CASE("bare values are what the tool's schema says", "[text][output]") {
  const char* schema = R"({"x": {"type": "integer"}})";
  const auto value = [&](const std::string& text) {
    return parse(typed("qwen3_coder", schema), characters(qwen_call(text))).calls.at(0).arguments;
  };
  CHECK(value("3") == R"({"x": 3})");
  CHECK(value("three") == R"({"x": "three"})");
  schema = R"({"x": {"type": "string"}})";
  CHECK(value("3") == R"({"x": "3"})");
  CHECK(value("\na\n\n") == R"({"x": "\na\n\n"})");
  CHECK(value("") == R"({"x": ""})");
  CHECK(value("</parameter <b> \"") == R"({"x": "</parameter <b> \""})");
  schema = R"({"x": {"type": "boolean"}})";
  CHECK(value("True") == R"({"x": true})");
  schema = R"({"x": {"anyOf": [{"type": "integer"}, {"type": "null"}]}})";
  CHECK(value("null") == R"({"x": null})");
  CHECK(value("[1]") == R"({"x": "[1]"})");
  schema = R"({"x": {"type": ["string", "null"]}})";
  CHECK(value("null") == R"({"x": null})");
  CHECK(value("\"a\"") == R"({"x": "\"a\""})");
  schema = R"({"x": {"$ref": "#/$defs/Point"}})";
  CHECK(value("{'a': None}") == R"({"x": {"a": null}})");
  schema = R"({"x": {"enum": [1, 2]}})";
  CHECK(value("2") == R"({"x": 2})");
  schema = R"({"x": {}})";
  CHECK(value("2") == R"({"x": "2"})");
}

TEST_CASE("markers that were left out are missed by nobody", "[text][output]") {
  check({
      {"Qwen's call without its tag",
       typed("qwen3_coder", "{}"),
       "<function=f>\n</function>\n</tool_call>",
       {"", "", {{"f", "{}"}}, ""}},
      {"Mistral's arguments without theirs",
       of("mistral_v11"),
       "[TOOL_CALLS]f{\"a\": 1}",
       {"", "", {{"f", "{\"a\": 1}"}}, ""}},
      {"a call without the section",
       of("kimi_k2"),
       "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
       {"", "", {{"f", "{}"}}, ""}},
      {"two objects in one tag",
       kTools,
       "<tool_call>\n{\"name\": \"f\"}\n{\"name\": \"g\"}\n</tool_call>",
       {"", "", {{"f", "{}"}, {"g", "{}"}}, ""}},
  });
}

TEST_CASE("harmony's channels", "[text][output]") {
  const OutputFormat harmony = of("gpt_oss", "harmony");
  OutputFormat no_calls = harmony;
  no_calls.calls = false;
  const std::string call =
      "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>";
  check({
      {"no header at all", harmony, "Hello <|end|>", {"", "Hello", {}, ""}},
      {"another recipient thinks",
       harmony,
       "<|channel|>analysis to=browser.search<|message|>{}<|call|>",
       {"{}", "", {}, ""}},
      {"calls that nobody asked for are content", no_calls, call, {"", "{\"a\": 1}", {}, ""}},
      {"no message after a call",
       harmony,
       call + "<|start|>assistant<|channel|>fin",
       {"", "", {{"f", "{\"a\": 1}"}}, ""}},
      {"the start without an end",
       harmony,
       "<|channel|>analysis<|message|>hm<|start|>assistant<|channel|>final<|message|>yes",
       {"hm", "yes", {}, ""}},
  });
}

TEST_CASE("ids are the family's", "[text][output]") {
  const auto ids = [](const char* dialect, const std::string& text) {
    std::vector<std::string> all;
    OutputParser parser(of(dialect));
    const OutputDelta delta = parser.push(text);
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (call.id) all.push_back(*call.id);
    }
    return all;
  };
  const auto hermes = ids("hermes", "<tool_call>{\"name\": \"f\"}{\"name\": \"f\"}</tool_call>");
  REQUIRE(hermes.size() == 2);
  CHECK(hermes[0].starts_with("chatcmpl-tool-"));
  CHECK(hermes[0] != hermes[1]);
  CHECK(ids("mistral_v3", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]").at(0).size() == 9);
  CHECK(ids("mistral_v11", "[TOOL_CALLS]f[CALL_ID]abc123450[ARGS]{}").at(0) == "abc123450");
  const std::string kimi =
      "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>";
  const auto written = ids("kimi_k2", kimi + kimi);
  REQUIRE(written.size() == 2);
  CHECK(written[0] == "functions.f:0");
  CHECK(written[1].starts_with("chatcmpl-tool-"));  // once is enough
}

TEST_CASE("what a call cannot mean is given back to the letter", "[text][output]") {
  const std::string renamed = "<tool_call>{\"name\":\"f\",\"parameters\":{\"s\":\"x\"}}</tool_call>";
  check({{"arguments under another name", kTools, renamed, {"", renamed, {}, ""}},
         {"none at all", kTools, "<tool_call>{\"name\":\"f\"}</tool_call>", {"", "", {{"f", "{}"}}, ""}}});
}

TEST_CASE("a demanded call that breaks off is a call once its name is known, and never text",
          "[text][output]") {
  const auto demanded = [](const char* dialect, bool starts_inside = false) {
    OutputFormat format = of(dialect, "think", starts_inside);
    format.only_calls = true;
    return format;
  };
  const Parsed nothing, named{"", "", {{"f", ""}}, ""};
  check({{"marker", demanded("hermes"), "<tool_c", nothing},
         {"name open", demanded("hermes"), "<tool_call>\n{\"name\": \"f", nothing},
         {"name closed", demanded("hermes"), "<tool_call>\n{\"name\": \"f\"", named},
         {"before arguments", demanded("hermes"), "<tool_call>\n{\"name\": \"f\", \"arguments", named},
         {"arguments", demanded("hermes"), "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1",
          {"", "", {{"f", "{\"a\": 1"}}, ""}},
         {"second", demanded("hermes"), "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"na",
          {"", "", {{"f", "{}"}}, ""}},
         {"bare name open", demanded("qwen3_coder"), "<tool_call>\n<function=f", nothing},
         {"bare name", demanded("qwen3_coder"), "<tool_call>\n<function=f>\n", named},
         {"list", demanded("llama3_json"), "{\"name\": \"f\"", named},
         {"python", demanded("pythonic"), "[f", nothing},
         {"python name", demanded("pythonic"), "[f(", named},
         {"thought", demanded("hermes", true), "I thi", {"I thi", "", {}, ""}},
         {"of the model's choice", of("hermes"), "<tool_call>\n{\"name\": \"f\"",
          {"", "<tool_call>\n{\"name\": \"f\"", {}, ""}}});
}

TEST_CASE("arguments and text are given while they are written", "[text][output]") {
  OutputParser parser(kTools);
  CHECK(parser.push("<tool_call>\n{\"name\": \"write\", \"argum").empty());
  const OutputDelta first = parser.push("ents\": {\"text\": \"Once ");
  REQUIRE(first.tool_calls.size() == 1);
  CHECK(first.tool_calls[0].name == "write");
  CHECK(first.tool_calls[0].arguments == "{\"text\": \"Once ");
  CHECK(parser.push("upon a time").tool_calls.at(0).arguments == "upon a time");

  OutputParser xml(typed("qwen3_coder", R"({"x": {"type": "string"}})"));
  CHECK(xml.push("<tool_call>\n<function=f>\n<parameter=x>\nOnce").tool_calls.at(0).arguments ==
        "{\"x\": \"Once");
  CHECK(xml.push(" upon\n").tool_calls.at(0).arguments == " upon");

  OutputParser text(kBoth);
  CHECK(text.in_reasoning());
  CHECK(text.push("I think").reasoning == "I think");
  CHECK(text.push("</thi").empty());
  CHECK(text.in_reasoning());
  CHECK(text.push("nk>\n\nNo").content == "No");
  CHECK_FALSE(text.in_reasoning());
  CHECK(text.push("w <tool").content == "w");
  CHECK(text.push("box").content == " <toolbox");
}
