#include "server/generation/stop_strings.h"

#include <catch2/catch.hpp>
#include <random>

using quire::StopStrings;

namespace {

using Stops = std::vector<std::string>;

struct Outcome {
  std::string text;
  std::optional<std::string> found;
};

// Pushes the text in pieces of the given sizes, the last size repeated.
Outcome run(const Stops& strings, bool include, std::string_view text, std::size_t piece) {
  StopStrings stops(strings, include);
  Outcome outcome;
  for (std::size_t at = 0; at < text.size() && !stops.found(); at += piece) {
    outcome.text += stops.push(text.substr(at, piece), true);
  }
  outcome.text += stops.finish();
  outcome.found = stops.found();
  return outcome;
}

}  // namespace

TEST_CASE("a stop string ends the text wherever it is cut", "[server][stop]") {
  for (std::size_t piece = 1; piece < 12; ++piece) {
    INFO(piece);
    const auto cut = run({"END", "STOP"}, false, "an EN ENDED story", piece);
    CHECK(cut.text == "an EN ");
    CHECK(cut.found == "END");
    const auto kept = run({"END", "STOP"}, true, "an EN ENDED story", piece);
    CHECK(kept.text == "an EN END");
    const auto none = run({"END", "STOP"}, false, "a story without EN", piece);
    CHECK(none.text == "a story without EN");
    CHECK_FALSE(none.found);
  }
}

TEST_CASE("only what may become a stop string is held back", "[server][stop]") {
  const Stops strings = {"abab!"};
  StopStrings stops(strings, false);
  CHECK(stops.push("xxab", true) == "xx");
  CHECK(stops.push("ab", true) == "");
  CHECK(stops.push("ab", true) == "ab");  // the first "ab" cannot begin it any more
  CHECK(stops.push("c", true) == "ababc");
  CHECK(stops.push("abab", true) == "");
  CHECK(stops.push("!rest", true) == "");
  CHECK(stops.found() == "abab!");
  CHECK(stops.push("more", true) == "");
}

TEST_CASE("the earliest of several stop strings wins", "[server][stop]") {
  CHECK(run({"b", "a"}, false, "xaby", 4).text == "x");
  CHECK(run({"b", "a"}, false, "xaby", 4).found == "a");
}

TEST_CASE("what must not stop yet does not", "[server][stop]") {
  const Stops strings = {"."};
  StopStrings stops(strings, false);
  std::string text = stops.push("a.b", false);
  text += stops.push("c.", true);
  CHECK(text == "a.bc");
  CHECK(stops.found() == ".");
}

TEST_CASE("every cut of random texts gives the same", "[server][stop]") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text, stop;
    for (int i = 0; i < 30; ++i) text += "ab"[random() % 2];
    for (unsigned i = 0; i < 3 + random() % 4; ++i) stop += "ab"[random() % 2];
    const bool include = random() % 2;
    const auto whole = run({stop}, include, text, text.size());
    const auto at = text.find(stop);
    REQUIRE(whole.text ==
            (at == std::string::npos ? text : text.substr(0, at + (include ? stop.size() : 0))));
    for (std::size_t piece = 1; piece < 8; ++piece) {
      REQUIRE(run({stop}, include, text, piece).text == whole.text);
    }
  }
}
