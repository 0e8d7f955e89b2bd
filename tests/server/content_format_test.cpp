// What chat templates are given of messages: what vLLM 0.33 detects of templates
// (tests/data/content_format.jsonl) and what jinja2 makes of its messages (content_texts.jsonl),
// of the golden templates as of those in the lines; with $QUIRE_GOLDEN_DIR of all of them.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "jinja/values/json.h"
#include "openapi/dto_json.h"
#include "openapi/responses.h"
#include "server/chat_prompt_text.h"

using namespace quire;
using jinja::Dict;
using jinja::Value;

namespace {

namespace fs = std::filesystem;

Value field(const Dict& line, std::string_view name) {
  const Value* found = line.find(name);
  return found == nullptr ? Value() : *found;
}

fs::path golden_template(const std::string& name) {
  const char* dir = std::getenv("QUIRE_GOLDEN_DIR");
  return fs::path(dir != nullptr ? dir : "tests/data/golden") / "chat_templates" / name /
         "template.jinja";
}

// A line's template; unset where it is one of the golden ones that are not here.
std::optional<std::string> source_of(const Dict& line) {
  if (const Value source = field(line, "template"); source.is_string()) return source.string();
  const fs::path path = golden_template(field(line, "golden").string());
  if (!fs::exists(path)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int for_each_line(const std::string& path, const auto& check) {
  std::ifstream lines(path);
  int checked = 0;
  for (std::string text; std::getline(lines, text);) {
    const Value line = jinja::parse_json(text);
    const auto source = source_of(line.dict());
    if (!source) continue;
    INFO(text.substr(0, 300));
    check(line.dict(), *source);
    ++checked;
  }
  return checked;
}

Result<openapi::ChatCompletionRequest> asked(const Value& messages) {
  Dict request;
  request.set("messages", messages);
  return openapi::parse_chat_completion(jinja::dump_json(Value(std::move(request)), {}));
}

Result<std::string> prompt(const Value& messages, const std::string& source,
                           std::string_view flag) {
  Dict tokens;
  tokens.set("bos_token", Value("<s>"));
  tokens.set("eos_token", Value("</s>"));
  TextDefaults defaults;
  defaults.content_format = find_content_format(flag);
  const ChatTemplate chat_template = ChatTemplate::parse(source, tokens);
  const auto request = asked(messages);
  if (!request) return request.error();
  return chat_prompt_text(*request, &chat_template, defaults);
}

const std::string kLists =
    "{% for m in messages %}<{{ m.role }}>{% for c in m.content %}[{{ c.text }}]{% endfor %}"
    "{% endfor %}";

}  // namespace

TEST_CASE("a template's content format is the one that vLLM detects") {
  const auto check = [](const Dict& line, const std::string& source) {
    CHECK(name_of(ChatTemplate::parse(source).content_format(false)) ==
          field(line, "format").string());
  };
  CHECK(for_each_line("tests/data/content_format.jsonl", check) > 80);
}

TEST_CASE("many macros of one name and many calls of it are no pairs to look at") {
  std::string source = "{% for m in messages %}{% macro f(a) %}{{ a }}{% endmacro %}";
  constexpr int kCount = 20'000;  // of each: 400 million pairs
  for (int i = 0; i < kCount; ++i) source += "{% macro f(a) %}{% endmacro %}{{ f(m.content) }}";
  source += "{% macro f(b) %}{% for c in b %}{{ c }}{% endfor %}{% endmacro %}{% endfor %}";
  CHECK(ChatTemplate::parse(source, {}).content_format(false) == ContentFormat::parts);
}

TEST_CASE("conversations of several parts read as vLLM and jinja2 have them") {
  const auto check = [](const Dict& line, const std::string& source) {
    const auto text = prompt(field(line, "messages"), source, field(line, "flag").string());
    INFO((text ? "" : text.error().detail));
    REQUIRE(text.has_value());
    CHECK(*text == field(line, "text").string());
  };
  CHECK(for_each_line("tests/data/content_texts.jsonl", check) > 100);
}

TEST_CASE("instructions that are joined are one part") {
  const Value messages = jinja::parse_json(
      R"([{"role":"system","content":["a","b"]},{"role":"developer","content":["c","d"]},)"
      R"({"role":"user","content":["e","f"]}])");
  CHECK(*prompt(messages, kLists, "auto") == "<system>[a\nb\n\nc\nd]<user>[e][f]");
}

TEST_CASE("each of a model's two templates is given what it takes") {
  const fs::path dir = fs::temp_directory_path() / "quire_content_format_test";
  fs::create_directories(dir / "additional_chat_templates");
  std::ofstream(dir / "tokenizer_config.json") << "{}";
  std::ofstream(dir / "chat_template.jinja") << "{{ messages[0].content }}";
  std::ofstream(dir / "additional_chat_templates" / "tool_use.jinja") << kLists;
  const ChatTemplate chat_template = ChatTemplate::load(dir.string());
  CHECK(chat_template.content_format(false) == ContentFormat::text);
  CHECK(chat_template.content_format(true) == ContentFormat::parts);
  auto request = asked(jinja::parse_json(R"([{"role":"user","content":["a","b"]}])"));
  CHECK(*chat_prompt_text(*request, &chat_template, {}) == "a\nb");
  request->tools = R"([{"type":"function","function":{"name":"f"}}])";
  CHECK(*chat_prompt_text(*request, &chat_template, {}) == "<user>[a][b]");
  fs::remove_all(dir);
}

TEST_CASE("a request's own template is given what it takes") {
  auto request = asked(jinja::parse_json(R"([{"role":"user","content":["a","b"]}])"));
  request->chat_template = kLists;
  TextDefaults defaults;
  defaults.trust_request_chat_template = true;
  const ChatTemplate of_model = ChatTemplate::parse("{{ messages[0].content }}");
  CHECK(*chat_prompt_text(*request, &of_model, defaults) == "<user>[a][b]");
  defaults.content_format = ContentFormat::text;
  CHECK(*chat_prompt_text(*request, &of_model, defaults) == "<user>[][][]");
}

TEST_CASE("blocks of Messages and items of Responses are parts, too") {
  const ChatTemplate lists = ChatTemplate::parse(kLists);
  const auto messages = openapi::parse_messages(
      R"({"max_tokens":5,"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1"},)"
      R"({"type":"text","text":"s"},{"type":"text","text":"t"}],)"
      R"("messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
      R"({"role":"assistant","content":"c"},{"role":"user","content":"d"}]})");
  REQUIRE(messages.has_value());
  CHECK(*chat_prompt_text(*messages, &lists, {}) ==
        "<system>[s\nt]<user>[a][b]<assistant>[c]<user>[d]");
  const auto responses = openapi::parse_responses(
      R"({"input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},)"
      R"({"type":"function_call","call_id":"1","name":"f","arguments":"{}"},)"
      R"({"type":"function_call_output","call_id":"1","output":"c"}]})");
  REQUIRE(responses.has_value());
  const std::string calls =
      "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for c in m.content %}[{{ c.text }}]{% endfor %}{% endif %}{% endfor %}";
  const ChatTemplate either = ChatTemplate::parse(calls);
  CHECK(*chat_prompt_text(*responses, &either, {}) == "<user>[a][b]<assistant><tool>c");
}

TEST_CASE("a conversation has so many messages and parts, in every dialect") {
  const auto detail = [](const Result<openapi::ChatCompletionRequest>& request) {
    REQUIRE(request.has_value());
    const ChatTemplate chat_template = ChatTemplate::parse("{{ messages | length }}");
    const auto text = chat_prompt_text(*request, &chat_template, {});
    return text ? *text : text.error().field + ": " + text.error().detail;
  };
  // So many of them in two messages; a part is never the first of its message.
  const auto list = [](int count, const std::string& part) {
    std::string text;
    for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + part;
    return text;
  };
  const auto turns = [&](int count) {
    const std::string one = R"({"role":"user","content":"a"},{"role":"assistant","content":"b"},)";
    return one + R"({"role":"user","content":[)" +
           list(count - 2, R"({"type":"text","text":""})") + "]}";
  };
  constexpr int kMost = 1 << 16;
  const std::string refused =
      "messages: messages: at most 65536 messages and parts of them in all, not 65537";
  const auto chat = [&](int count) {
    return detail(openapi::parse_chat_completion(R"({"messages":[)" + turns(count) + "]}"));
  };
  CHECK(chat(kMost) == "3");
  CHECK(chat(kMost + 1) == refused);
  const auto messages = [&](int count) {
    return detail(openapi::parse_messages(R"({"model":"a","max_tokens":8,"messages":[)" +
                                          turns(count) + "]}"));
  };
  CHECK(messages(kMost) == "3");
  CHECK(messages(kMost + 1) == refused);
  const std::string turn = R"({"role":"user","content":"a"})";
  CHECK(detail(openapi::parse_chat_completion(R"({"messages":[)" + list(kMost + 1, turn) + "]}")) ==
        refused);
}
