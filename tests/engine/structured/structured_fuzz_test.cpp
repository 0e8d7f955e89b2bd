// Specifications that nobody should send: the vectors' own, mangled. Whatever comes is taken or
// refused with a place and a reason, and what is taken follows any text without a fault.

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/engine/structured/grammars.h"

namespace quire::structured {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

struct Source {
  GrammarSpec::Kind kind;
  std::string text;
};

std::vector<Source> sources() {
  std::vector<Source> all;
  for (const auto& entry : fs::directory_iterator("tests/data/structured/accept")) {
    std::ifstream file(entry.path());
    json::parse_options options;
    options.max_depth = 500;
    for (std::string line; std::getline(file, line);) {
      const json::object vector = json::parse(line, {}, options).as_object();
      const auto kind = grammar_kind(std::string(vector.at("kind").as_string()));
      const json::object& parts = vector.at("spec").as_object();
      for (const char* key : {"schema", "choice", "regex", "grammar"}) {
        const auto* part = parts.if_contains(key);
        if (part == nullptr || !kind) continue;
        const bool is_text = key == std::string_view("regex") || key == std::string_view("grammar");
        all.push_back({*kind, is_text ? std::string(part->as_string()) : json::serialize(*part)});
      }
    }
  }
  const auto tag = GrammarSpec::Kind::structural_tag;
  all.push_back({tag, R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<f"],"tags":[)"
                      R"({"begin":"<f>","content":{"type":"json_schema","json_schema":{"type":"object"}},"end":"</f>"}]}})"});
  all.push_back({tag, R"({"format":{"type":"sequence","elements":[{"type":"const_string","value":"a"},)"
                      R"({"type":"or","elements":[{"type":"regex","pattern":"[0-9]+"},{"type":"answer"}]},)"
                      R"({"type":"any_text","without":["</t>"]}]},"answer":{"type":"choice","choice":["x"]}})"});
  return all;
}

std::string mangled(std::string text, const std::vector<Source>& all, std::mt19937& random) {
  static constexpr std::string_view kBytes = "{}[]()<>\"'\\,:=|*+?.^$-_ \n0179abxu\x80\xff";
  static constexpr const char* kWords[] = {"null", "true", "1e999", "\"$ref\":\"#\",", "\\u0000", "(?i)", "{0,99999}", "::=",
                                           "\"allOf\":[{}],", "\"not\":{},", "[^", "\\p{L}", "-0.0", "\"type\":\"object\","};
  text.resize(std::min<std::size_t>(text.size(), 3'000));
  for (int n = 1 + static_cast<int>(random() % 4); n > 0; --n) {
    const std::size_t at = random() % (text.size() + 1);
    switch (random() % 6) {
      case 0: text.erase(at, 1 + random() % 9); break;
      case 1: text.insert(at, 1, kBytes[random() % kBytes.size()]); break;
      case 2: text.insert(at, kWords[random() % std::size(kWords)]); break;
      case 3: text.insert(at, text.substr(random() % (text.size() + 1), random() % 60)); break;
      case 4: text.resize(at); break;
      default: {
        const std::string& other = all[random() % all.size()].text;
        text.insert(at, other.substr(random() % (other.size() + 1), random() % 80));
      }
    }
  }
  return text;
}

TEST_CASE("mangled specifications are taken or refused, and followed without a fault",
          "[structured][fuzz]") {
  const auto all = sources();
  REQUIRE(all.size() > 50);
  GrammarContext context = tokens({"a", "b", "{", "}", "\"", "\":", "1", " ", "x\"", "\xc3", "\xa9"});
  context.limits.compile_time = std::chrono::milliseconds(20);
  context.limits.step_time = std::chrono::milliseconds(5);
  context.limits.memory_bytes = 16u << 20;
  const char* more = std::getenv("QUIRE_FUZZ_ROUNDS");
  const int rounds = more == nullptr ? 4'000 : std::atoi(more);
  std::mt19937 random(5);
  int taken = 0;
  for (int round = 0; round < rounds; ++round) {
    const Source& source = all[random() % all.size()];
    const std::string text = mangled(source.text, all, random);
    INFO(text);
    try {
      const auto made = grammar(source.kind, text, context);
      ++taken;
      GrammarMatcher matcher(made);
      std::vector<std::uint32_t> words(context.vocabulary->words());
      for (int step = 0; step < 20; ++step) {
        matcher.fill_mask(words);
        std::vector<TokenId> may;
        for (TokenId id = 0; id < context.vocabulary->size(); ++id) {
          if (words[static_cast<std::size_t>(id) / 32] >> id % 32 & 1) may.push_back(id);
        }
        if (may.empty()) break;
        REQUIRE(matcher.accept(may[random() % may.size()]));
        if (step % 5 == 4) matcher.rollback(2);
        matcher.forced_bytes(16);
      }
    } catch (const GrammarFailure& failure) {
      CHECK(std::string_view(failure.what()).size() > 3);
    }
  }
  CHECK(taken > rounds / 20);
}

}  // namespace
}  // namespace quire::structured
