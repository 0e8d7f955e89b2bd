// Mutated templates and inputs end with a text or an error, never in a crash. CI runs a fixed seed;
// a fuzzer can drive LLVMFuzzerTestOneInput.

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "jinja/values/json.h"
#include "text/template/chat_template.h"

namespace {

using quire::ChatTemplate;
using quire::jinja::Dict;
using quire::jinja::Value;

// Stops templates that work hard, so that many can be tried.
constexpr std::size_t kMaxSource = 4000;

const Dict& context() {
  static const Dict kContext =
      quire::jinja::parse_json(
          R"({"l": [3, 1, 2], "s": "Hello World", "d": {"b": 1, "a": null, "items": [1]}, "n": 5, "x": 2.5, "e": [],
              "u": "Straße 日本 🙂", "t": true, "nul": null, "big": 123456789012345678901234567890,
              "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "U"}]},
                           {"role": "assistant", "content": "A", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
                           {"role": "tool", "content": "42"}],
              "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]})")
          .dict();
  return kContext;
}

void try_template(const std::string& source) {
  if (source.size() > kMaxSource) return;
  try {
    const ChatTemplate chat_template = ChatTemplate::parse(source);
    (void)chat_template.render_context(context());
    quire::ChatTemplateInput input;
    input.messages = *context().find("messages");
    input.tools = *context().find("tools");
    input.continue_final_message = source.size() % 2 == 0;
    (void)chat_template.render(input);
  } catch (const quire::TemplateFailure& failure) {
    REQUIRE_FALSE(failure.cause().message.empty());
  }
}

void try_json(const std::string& json) {
  try {
    const Value value = quire::jinja::parse_json(json);
    const std::string written = quire::jinja::dump_json(value, {});
    REQUIRE(quire::jinja::dump_json(quire::jinja::parse_json(written), {}) == written);
  } catch (const quire::Failure&) {
  }
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> seeds() {
  std::vector<std::string> sources;
  const std::filesystem::path golden = "tests/data/golden/chat_templates";
  std::ifstream lines(golden / "language" / "cases.jsonl");
  for (std::string line; std::getline(lines, line);) {
    sources.push_back(quire::jinja::parse_json(line).dict().find("template")->string());
  }
  for (const auto& entry : std::filesystem::directory_iterator(golden)) {
    if (std::filesystem::exists(entry.path() / "template.jinja"))
      sources.push_back(read(entry.path() / "template.jinja"));
  }
  return sources;
}

std::string mutate(const std::vector<std::string>& sources, std::mt19937& random) {
  static constexpr std::string_view kWords[] = {"{{",
                                                "}}",
                                                "{%",
                                                "%}",
                                                "{#",
                                                "#}",
                                                "-",
                                                "|",
                                                "(",
                                                ")",
                                                "[",
                                                "]",
                                                "{",
                                                "}",
                                                "'",
                                                "\"",
                                                ".",
                                                ",",
                                                ":",
                                                "~",
                                                "**",
                                                "//",
                                                " if ",
                                                " else ",
                                                "{% for i in l %}",
                                                "{% endfor %}",
                                                "{% endif %}",
                                                " is ",
                                                " not ",
                                                " in ",
                                                "loop",
                                                "loop(l)",
                                                "recursive",
                                                "namespace()",
                                                "ns.x",
                                                "{% set ",
                                                "{% macro m(a=1) %}",
                                                "{% endmacro %}",
                                                "{% call m() %}",
                                                "{% endcall %}",
                                                "caller()",
                                                "|map('upper')",
                                                "|list",
                                                "|sort",
                                                "|join",
                                                "|tojson",
                                                "|batch(2)",
                                                "|indent",
                                                "|int",
                                                "range(5)",
                                                "%",
                                                "9223372036854775807",
                                                "1e308",
                                                "\\",
                                                "\xff",
                                                "\0x",
                                                "é",
                                                "{% break %}",
                                                "{% raw %}",
                                                "{% endraw %}",
                                                ".format(l)",
                                                "[::-1]",
                                                "[1:2]",
                                                "self.b()",
                                                "{% block b scoped %}",
                                                "{% endblock %}",
                                                "{% autoescape true %}",
                                                "{% endautoescape %}",
                                                "{% generation %}",
                                                "{% endgeneration %}"};
  std::string source = sources[random() % sources.size()].substr(0, kMaxSource);
  const auto num_changes = 1 + random() % 4;
  for (unsigned i = 0; i < num_changes; ++i) {
    const std::size_t at = source.empty() ? 0 : random() % source.size();
    const std::size_t size = random() % 8;
    switch (random() % 5) {
      case 0:
        source.erase(at, size);
        break;
      case 1:
        source.insert(at, kWords[random() % std::size(kWords)]);
        break;
      case 2:
        source.insert(at, source.substr(random() % (source.size() + 1), size * 3));
        break;
      case 3:
        source.replace(at, size, kWords[random() % std::size(kWords)]);
        break;
      default: {
        const std::string& other = sources[random() % sources.size()];
        source.insert(at, other.substr(other.empty() ? 0 : random() % other.size(), size * 5));
      }
    }
  }
  return source;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  try_template(input);
  try_json(input);
  return 0;
}

TEST_CASE("mutated templates render or fail, and nothing else", "[text][jinja][fuzz]") {
  const std::vector<std::string> sources = seeds();
  REQUIRE(sources.size() > 1000);
  std::mt19937 random(20250308);
  for (int round = 0; round < 6000; ++round) {
    const std::string source = mutate(sources, random);
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(source.data()), source.size());
  }
}

TEST_CASE("mutated JSON is read or refused", "[text][jinja][fuzz]") {
  const std::string seed = quire::jinja::dump_json(Value(context()), {});
  std::mt19937 random(3);
  for (int round = 0; round < 4000; ++round) {
    std::string json = seed;
    const auto num_changes = 1 + random() % 3;
    for (unsigned i = 0; i < num_changes; ++i) {
      const std::size_t at = random() % json.size();
      if (random() % 2 == 0)
        json[at] = char(random());
      else
        json.erase(at, random() % 5);
    }
    try_json(json);
  }
}
