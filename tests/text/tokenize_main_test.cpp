#include "app/commands/tokenize_main.h"

#include <catch2/catch.hpp>

#include "tests/support/run_main.h"

namespace quire {
namespace {

test::MainOutcome run(std::vector<const char*> arguments, const std::string& input) {
  return test::run_main(tokenize_main, std::move(arguments), input);
}

constexpr const char* kModel = "tests/data/golden/tokenizers/roberta";

TEST_CASE("quire tokenize answers line by line", "[app][tokenize]") {
  const auto outcome = run({"--model", kModel, "--jsonl"},
                           "{\"text\": \"a\\n\", \"special\": true}\n"
                           "{\"ids\": [0, 5, 2], \"skip_special\": true}\n"
                           "{\"ids\": [5, 99999999999], \"stream\": true, \"prompt_ids\": [5]}\n"
                           "{\"ids\": [-1]}\n"
                           "{\"text\": 7}\n"
                           "{\"ids\": [\"a\"]}\n"
                           "{}\n"
                           "not json\n");
  CHECK(outcome.exit_code == 0);
  std::istringstream lines(outcome.out);
  std::vector<std::string> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(line);
  REQUIRE(answers.size() == 8);
  CHECK_THAT(answers[0], Catch::StartsWith("{\"ids\":[0,") && Catch::EndsWith(",2]}"));
  CHECK(answers[1] == "{\"text\":\"\\\"\"}");
  CHECK(answers[2] == "{\"pieces\":[\"\\\"\",\"\",\"\"]}");
  CHECK(answers[3] == "{\"text\":\"\"}");
  for (std::size_t i = 4; i < 8; ++i) CHECK_THAT(answers[i], Catch::StartsWith("{\"error\":\""));
}

TEST_CASE("quire tokenize for people", "[app][tokenize]") {
  const auto encoded = run({"--model", kModel}, "a\n");
  CHECK(encoded.exit_code == 0);
  CHECK_THAT(encoded.out, Catch::Contains("a\n1 tokens\n"));
  CHECK(run({"--model", kModel, "--decode"}, "5 5").out == "\"\"\n");
  CHECK(run({"--model", kModel, "--decode"}, "five").exit_code == 1);
}

TEST_CASE("quire tokenize without a model", "[app][tokenize]") {
  CHECK(run({}, "").exit_code > 100);
  const auto missing = run({"--model", "no/such/folder"}, "");
  CHECK(missing.exit_code == 1);
  CHECK_THAT(missing.err, Catch::Contains("no/such/folder"));
  const auto help = run({"--help"}, "");
  CHECK(help.exit_code == 0);
  CHECK_THAT(help.out, Catch::Contains("--jsonl"));
}

}  // namespace
}  // namespace quire
