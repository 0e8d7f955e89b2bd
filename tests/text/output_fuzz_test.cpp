// Outputs that no model should write: whatever comes, nothing crashes, every cut gives the same,
// what is given of calls makes sense, and the work grows with the text alone.

#include <catch2/catch.hpp>
#include <random>

#include "tests/text/output_case.h"
#include "text/output/json_scanner.h"

using namespace quire;
using namespace quire::test;

namespace {

std::string mutated(const OutputCase& c, const std::vector<OutputCase>& all, std::mt19937& random) {
  std::string text = c.text.substr(0, 1500);
  const auto markers = markers_of(c.format.dialect->name);
  for (int n = 1 + int(random() % 4); n > 0; --n) {
    const std::size_t at = random() % (text.size() + 1);
    switch (random() % 6) {
      case 0:
        text.erase(at, 1 + random() % 9);
        break;
      case 1:
        text.insert(at, markers[random() % markers.size()]);
        break;
      case 2:
        text.insert(at, 1, "{}[]()<>\"'\\,:= \nx0"[random() % 18]);
        break;
      case 3:
        text.resize(at);
        break;
      case 4:
        text.insert(at, text.substr(random() % (text.size() + 1), random() % 60));
        break;
      default: {
        const std::string& other = all[random() % all.size()].text;
        text.insert(at, other.substr(random() % (other.size() + 1), random() % 80));
      }
    }
  }
  return text;
}

// Whole JSON objects, but for the last call of a text that breaks off.
bool has_wild_arguments(const Parsed& parsed) {
  for (const Call& call : parsed.calls) {
    if (!call.arguments.empty() && call.arguments.front() != '{') return true;
  }
  return false;
}

std::vector<std::string_view> bytes_of(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (std::size_t i = 0; i < text.size(); ++i) pieces.push_back(text.substr(i, 1));
  return pieces;
}

std::uint64_t work_of(const OutputFormat& format, const std::string& text) {
  OutputParser parser(format);
  parser.push(text);
  parser.finish();
  return parser.work();
}

std::string repeated(const std::string& text, std::size_t bytes) {
  std::string all;
  while (all.size() < bytes && !text.empty()) all += text;
  return all;
}

}  // namespace

TEST_CASE("mutated outputs give the same however they are cut", "[text][output][fuzz]") {
  const auto& all = output_cases();
  std::mt19937 random(11);
  for (int round = 0; round < 20'000; ++round) {
    const OutputCase& c = all[random() % all.size()];
    const std::string text = mutated(c, all, random);
    const Parsed whole = parse(c.format, {text});
    const Parsed cut = parse(c.format, bytes_of(text));
    if (whole == cut && whole.complaint.empty() && !has_wild_arguments(whole)) continue;
    INFO(c.id << " [" << text << "] whole " << whole << " cut " << cut);
    FAIL();
  }
}

TEST_CASE("a text without a call is given back to the letter", "[text][output][fuzz]") {
  const auto& all = output_cases();
  std::mt19937 random(12);
  const auto bare = [](std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (!std::isspace(static_cast<unsigned char>(c))) out += c;
    }
    return out;
  };
  int num_checked = 0;
  for (int round = 0; round < 20'000; ++round) {
    const OutputCase& c = all[random() % all.size()];
    if (c.format.dialect->channels || !c.format.dialect->wrappers.empty()) continue;
    const std::string text = mutated(c, all, random);
    const Parsed parsed = parse({.dialect = c.format.dialect}, {text});
    if (!parsed.calls.empty()) continue;
    INFO(c.id << " [" << text << "] " << parsed);
    REQUIRE(bare(parsed.content) == bare(text));
    ++num_checked;
  }
  CHECK(num_checked > 1000);
}

TEST_CASE("the work is linear in the text", "[text][output]") {
  constexpr std::size_t kBytes = 50'000;
  for (const Dialect& dialect : dialects()) {
    OutputFormat format{.dialect = &dialect, .reasoning = find_reasoning_format("think")};
    if (dialect.channels) format.reasoning = nullptr;
    std::vector<std::string> hostile = {repeated("a <", kBytes), repeated("<", kBytes),
                                        repeated(" \n", kBytes), repeated("[{(\"'", kBytes)};
    const std::string begin = dialect.calls.begin.empty() ? "[" : dialect.calls.begin.front();
    hostile.push_back(repeated(begin, kBytes));
    hostile.push_back(repeated(begin.substr(0, begin.size() - 1), kBytes));
    hostile.push_back(begin + repeated(" ", kBytes));
    hostile.push_back(begin + "{\"name\": \"" + repeated("n", kBytes));
    hostile.push_back(begin + "{\"x\": " + repeated("[", kBytes));
    for (const std::string& marker : dialect.markers()) {
      hostile.push_back(repeated(marker, kBytes));
      hostile.push_back(begin + repeated("f" + marker, kBytes));
    }
    for (const std::string& text : hostile) {
      INFO(dialect.name << " " << text.substr(0, 80));
      CHECK(work_of(format, text) <= 8 * text.size());
    }
  }
}
