#include "app/commands/render_main.h"

#include <catch2/catch.hpp>

#include "tests/support/run_main.h"

namespace quire {
namespace {

test::MainOutcome run(std::vector<const char*> arguments, const std::string& input) {
  return test::run_main(render_main, std::move(arguments), input);
}

TEST_CASE("quire render answers line by line", "[app][render]") {
  const auto outcome = run({"--jsonl"}, R"q({"template": "{{ a }}é", "context": {"a": 1}}
{"template": "{{ a", "context": {}}
{"template": "{{ raise_exception('no') }}", "messages": []}
{"template": "{{ strftime_now('%d %b') }}", "messages": [], "now": "2024-12-31T00:00:00"}
{"model": "models/quire-tiny", "messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true}
{"model": "no/such/folder", "messages": []}
{"messages": []}
{"template": "a", "messages": [], "now": "yesterday"}
{"template": "a", "messages": [], "add_generation_prompt": 1}
7
not JSON
)q");
  CHECK(outcome.exit_code == 0);
  std::istringstream lines(outcome.out);
  std::vector<std::string> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(line);
  REQUIRE(answers.size() == 11);
  CHECK(answers[0] == R"({"text": "1\u00e9"})");
  CHECK_THAT(answers[1], Catch::EndsWith(R"("error_kind": "syntax"})"));
  CHECK(answers[2] == R"({"error": "no", "error_kind": "raised"})");
  CHECK(answers[3] == R"({"text": "31 Dec"})");
  CHECK(answers[4] == R"({"text": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"})");
  for (std::size_t i = 5; i < answers.size(); ++i) {
    CHECK_THAT(answers[i], Catch::StartsWith(R"({"error": ")") &&
                               Catch::EndsWith(R"("error_kind": "request"})"));
  }
}

TEST_CASE("quire render for people", "[app][render]") {
  const std::string messages = R"([{"role": "user", "content": "Hi"}])";
  const auto prompt = run({"--model", "models/quire-tiny"}, messages);
  CHECK(prompt.exit_code == 0);
  CHECK(prompt.out == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  CHECK(run({"--model", "models/quire-tiny", "--no-generation-prompt"}, messages).out ==
        "<|im_start|>user\nHi<|im_end|>\n");
  CHECK_THAT(
      run({"--model", "models/quire-tiny", "--kwargs", R"({"enable_thinking": true})"}, messages)
          .out,
      Catch::EndsWith("<think>\n"));

  const auto wrong = run({"--model", "models/quire-tiny"}, R"({"messages": [{"role": "user", "content": "Hi"}],
                                    "chat_template": "{{ 1 + 'a' }}"})");
  CHECK(wrong.exit_code == 1);
  CHECK_THAT(wrong.err,
             Catch::StartsWith("quire render: the chat template fails in line 1: "));
  // The body of a request, as the server reads it.
  CHECK(run({"--model", "models/quire-tiny"},
            R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
                "add_generation_prompt": false})")
            .out == "<|im_start|>user\nHi<|im_end|>\n");
  CHECK(run({"--model", "models/quire-tiny"}, R"([{"role": "user", "content": [1]}])").err ==
        "quire render: messages[0].content[0]: expected a string or an object, got an integer\n");
  CHECK(run({}, messages).exit_code == 1);
  CHECK(run({"--nonsense"}, messages).exit_code > 100);
}

}  // namespace
}  // namespace quire
