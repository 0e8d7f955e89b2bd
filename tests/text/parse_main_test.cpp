#include "app/commands/parse_main.h"

#include <catch2/catch.hpp>
#include <sstream>

#include "tests/support/run_main.h"

namespace quire {
namespace {

test::MainOutcome run(std::vector<const char*> arguments, const std::string& input) {
  return test::run_main(parse_main, std::move(arguments), input);
}

TEST_CASE("quire parse answers line by line, a delta for each piece and one for the end",
          "[app][parse]") {
  const auto outcome = run(
      {"--jsonl"},
      R"q({"dialect": "gpt_oss", "reasoning": "harmony", "pieces": [{"special": "<|channel|>"}, "analysis", {"special": "<|message|>"}, "hm"]}
{"dialect": "hermes", "reasoning": null, "tools": [], "pieces": ["a <tool_call>{\"name\": \"f\", ", "\"arguments\": {}}</tool_call>"]}
{"dialect": "nobody's", "pieces": []}
{"dialect": "hermes", "pieces": [7]}
{"dialect": "hermes", "reasoning": "much", "pieces": []}
not JSON
)q");
  CHECK(outcome.exit_code == 0);
  std::istringstream lines(outcome.out);
  std::vector<std::string> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(line);
  REQUIRE(answers.size() == 6);
  CHECK(answers[0] == R"({"deltas": [null, null, null, {"reasoning": "hm"}, null], )"
                      R"("final": {"reasoning": "hm", "content": null, "tool_calls": []}})");
  CHECK_THAT(answers[1], Catch::StartsWith(R"({"deltas": [{"content": "a"}, {"tool_calls": [)"));
  CHECK_THAT(answers[1], Catch::EndsWith(R"("name": "f", "arguments": "{}"}]}})"));
  CHECK_THAT(answers[2], Catch::Contains("nobody's") && Catch::Contains("hermes"));
  for (std::size_t i = 2; i < answers.size(); ++i) {
    CHECK_THAT(answers[i], Catch::StartsWith(R"({"error": ")"));
  }
}

TEST_CASE("quire parse reads one text", "[app][parse]") {
  const auto outcome = run({"--dialect", "pythonic"}, "[f(a=True)]");
  CHECK(outcome.exit_code == 0);
  CHECK_THAT(outcome.out, Catch::Contains(R"("name": "f", "arguments": "{\"a\": true}")"));
  CHECK(run({"--dialect", "x"}, "").exit_code == 1);
  CHECK(run({"--tools", "no/such/file"}, "").exit_code == 1);
}

}  // namespace
}  // namespace quire
