// Mutated templates and inputs end with a text or an error, never in a crash: a fixed seed.

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "jinja/values/dict.h"
#include "jinja/values/json.h"
#include "tests/fuzz/targets.h"
#include "tests/support/mutate.h"

namespace {

// Of a template: what is longer is not tried.
constexpr std::size_t kMaxSource = 4000;

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

TEST_CASE("mutated templates render or fail, and nothing else", "[text][jinja][fuzz]") {
  const std::vector<std::string> sources = seeds();
  REQUIRE(sources.size() > 1000);
  std::mt19937 random(20250308);
  for (int round = 0; round < 6000; ++round) {
    const std::string source = mutate(sources, random);
    quire::fuzz::jinja(source);
  }
}

TEST_CASE("mutated JSON is read or refused", "[text][jinja][fuzz]") {
  const std::string seed =
      R"({"l": [3, 1, 2], "d": {"b": 1, "a": null, "items": [1]}, "n": 5, "x": 2.5e3, "e": [], "u": "Straße \ud83d\ude42 🙂", )"
      R"("t": true, "big": 123456789012345678901234567890, "nested": [{"a": [{"b": "c\n"}]}]})";
  std::mt19937 random(3);
  for (int round = 0; round < 4000; ++round) {
    std::string json = seed;
    const auto num_changes = 1 + random() % 3;
    for (unsigned i = 0; i < num_changes; ++i) quire::test::erase_or_overwrite(json, 2, 5, random);
    quire::fuzz::jinja(json);
  }
}
