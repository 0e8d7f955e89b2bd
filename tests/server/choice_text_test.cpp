#include "server/generation/choice_text.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "openapi/dto_json.h"

using namespace quire;

namespace {

constexpr TokenId kEnd = 1523;

const Tokenizer& tokenizer() {
  static const auto loaded = Tokenizer::load("models/quire-tiny");
  return *loaded;
}

// The text as outputs of `size` tokens; the last one ends with the end token, or with max_tokens.
std::vector<RequestOutput> outputs_of(const std::string& text, std::size_t size,
                                      bool with_end = true) {
  auto ids = tokenizer().encode(text, false);
  if (with_end) ids.push_back(kEnd);
  std::vector<RequestOutput> outputs;
  for (std::size_t at = 0; at < ids.size(); at += size) {
    const auto end = std::min(at + size, ids.size());
    RequestOutput& output = outputs.emplace_back();
    output.token_ids.assign(ids.begin() + static_cast<std::ptrdiff_t>(at),
                            ids.begin() + static_cast<std::ptrdiff_t>(end));
  }
  outputs.back().finish_reason = with_end ? FinishReason::stop : FinishReason::length;
  if (with_end) outputs.back().stop_token = kEnd;
  return outputs;
}

struct Told {
  std::string content, reasoning, finish_reason, stop_reason;
  std::vector<ToolCallDelta> calls;
  int num_tokens = 0;
};

Told tell(const std::vector<RequestOutput>& outputs, ChoiceTextOptions options) {
  ChoiceText text(tokenizer(), std::make_shared<const ChoiceTextOptions>(std::move(options)));
  Told told;
  for (const RequestOutput& output : outputs) {
    ChoiceDelta delta = text.push(output);
    told.content += delta.text.content;
    told.reasoning += delta.text.reasoning;
    for (auto& call : delta.text.tool_calls) told.calls.push_back(call);
    told.finish_reason = delta.finish_reason;
    told.stop_reason = delta.stop_reason;
    if (!delta.finish_reason.empty()) break;
  }
  told.num_tokens = text.num_tokens();
  return told;
}

}  // namespace

TEST_CASE("the end token ends the text and is not part of it", "[server][choice]") {
  for (const std::size_t size : {1, 3, 100}) {
    const auto told = tell(outputs_of("The answer is 19.", size), {});
    CHECK(told.content == "The answer is 19.");
    CHECK(told.finish_reason == "stop");
    CHECK(told.stop_reason == "null");
    CHECK(told.num_tokens ==
          static_cast<int>(tokenizer().encode("The answer is 19.", false).size()) + 1);
  }
  CHECK(tell(outputs_of("The answer", 2, false), {}).finish_reason == "length");
}

TEST_CASE("a stop string ends the choice at the token that completes it", "[server][choice]") {
  for (const std::size_t size : {1, 2, 5, 100}) {
    INFO(size);
    const auto told = tell(outputs_of("one two three four", size), {.stop = {"three"}});
    CHECK(told.content == "one two ");
    CHECK(told.finish_reason == "stop");
    CHECK(told.stop_reason == "\"three\"");
    CHECK(told.num_tokens == static_cast<int>(tokenizer().encode("one two three", false).size()));
    CHECK(tell(outputs_of("one two three four", size), {.stop = {"three"}, .include_stop = true})
              .content == "one two three");
  }
}

TEST_CASE("a stop token of the request is named, and shown only if asked for", "[server][choice]") {
  const auto told = tell(outputs_of("done", 9), {.stop_token_ids = {kEnd}});
  CHECK(told.content == "done");
  CHECK(told.stop_reason == std::to_string(kEnd));
  CHECK(tell(outputs_of("done", 9), {.skip_special_tokens = false, .include_stop = true}).content ==
        "done<|im_end|>");
}

TEST_CASE("stop strings wait for min_tokens", "[server][choice]") {
  const auto told = tell(outputs_of("a. b. c.", 1), {.stop = {"."}, .min_tokens = 3});
  CHECK(told.content.starts_with("a."));
  CHECK(told.num_tokens > 3);
  CHECK(told.finish_reason == "stop");
}

TEST_CASE("reasoning and tool calls are split from the content", "[server][choice]") {
  const std::string text =
      "thinking\n</think>\n\nLet me see.<tool_call>\n{\"name\": \"get_time\", \"arguments\": "
      "{\"city\": \"Oslo\"}}\n</tool_call>";
  for (const std::size_t size : {1, 4, 1000}) {
    INFO(size);
    ChoiceTextOptions options;
    options.format = OutputFormat{.dialect = find_dialect("hermes"),
                                  .reasoning = find_reasoning_format("think"),
                                  .starts_inside = true};
    const auto told = tell(outputs_of(text, size), options);
    CHECK(told.reasoning.find("thinking") != std::string::npos);
    CHECK(told.content.find("Let me see.") != std::string::npos);
    CHECK(told.content.find("tool_call") == std::string::npos);
    CHECK(told.finish_reason == "tool_calls");
    REQUIRE_FALSE(told.calls.empty());
    CHECK(told.calls[0].name == "get_time");
    std::string arguments;
    for (const auto& call : told.calls) arguments += call.arguments;
    CHECK(arguments == "{\"city\": \"Oslo\"}");
  }
}

TEST_CASE("the text continues the prompt's: SentencePiece's first space stays", "[server]") {
  const auto llama = Tokenizer::load("tests/data/golden/tokenizers/llama2-legacy");
  const std::string whole = "Once upon a time  there was a caf\u00e9 \U0001F600 by the sea.";
  const std::vector<TokenId> ids = llama->encode(whole, false);
  for (std::size_t cut = 1; cut < ids.size(); ++cut) {
    const auto prompt = std::span(ids).first(cut);
    const auto end = prompt.last(std::min(cut, ChoiceText::kPromptEnd));
    const auto tell = [&](ChoiceTextOptions options) {
      ChoiceText text(*llama, std::make_shared<const ChoiceTextOptions>(std::move(options)), end);
      RequestOutput output;
      output.token_ids.assign(ids.begin() + static_cast<std::ptrdiff_t>(cut), ids.end());
      output.finish_reason = FinishReason::length;
      return text.push(output).text.content;
    };
    const std::string before = llama->decode(prompt, false);
    INFO(before);
    if (before.find("\uFFFD") != before.npos) continue;  // the cut is inside of a character
    CHECK(before + tell({}) == whole);
    if (cut < 4) CHECK(before + tell({.stop = {" time"}}) == "Once upon a");
  }
}

TEST_CASE("log-probabilities come with the tokens that count", "[server][choice]") {
  auto outputs = outputs_of("one two three", 100);
  for (const TokenId id : outputs[0].token_ids) {
    outputs[0].logprobs.push_back({{id, -0.5f}, 1, {{id, -0.5f}, {3, -2.f}}});
  }
  const ChoiceTextOptions options{
      .stop = {"two"}, .wants_logprobs = true, .wants_token_ids = true};
  ChoiceText text(tokenizer(), std::make_shared<const ChoiceTextOptions>(options));
  const ChoiceDelta delta = text.push(outputs[0]);
  REQUIRE(delta.logprobs.size() == delta.token_ids.size());
  CHECK(static_cast<int>(delta.logprobs.size()) == text.num_tokens());
  CHECK(delta.logprobs[0].bytes == "one");
  CHECK(delta.logprobs[0].logprob == -0.5);
  CHECK(delta.logprobs[0].top.size() == 2);
}

namespace {

// Token by token with its log-probability, and the most likely other token beside it.
std::vector<openapi::TokenLogprob> logprobs_of(const std::string& text, std::size_t size,
                                               ChoiceTextOptions options) {
  options.wants_logprobs = true;
  ChoiceText choice(tokenizer(), std::make_shared<const ChoiceTextOptions>(std::move(options)));
  std::vector<openapi::TokenLogprob> told;
  for (RequestOutput& output : outputs_of(text, size)) {
    for (const TokenId id : output.token_ids)
      output.logprobs.push_back({{id, -0.5f}, 1, {{id, -0.5f}, {kEnd, -2.f}}});
    ChoiceDelta delta = choice.push(output);
    std::ranges::move(delta.logprobs, std::back_inserter(told));
    if (!delta.finish_reason.empty()) break;
  }
  return told;
}

std::string joined(const std::vector<openapi::TokenLogprob>& tokens) {
  std::string text;
  for (const auto& token : tokens) text += token.token;
  return text;
}

}  // namespace

TEST_CASE("a character of several tokens reads as nothing until it is whole", "[server][choice]") {
  const std::string text = "é漢字🙂 ok";
  for (const std::size_t size : {1, 2, 3, 100}) {
    INFO(size);
    const auto tokens = logprobs_of(text, size, {});
    CHECK(joined(tokens) == text + "<|im_end|>");
    REQUIRE(tokens.size() > 13);
    CHECK(tokens[0].token.empty());
    CHECK(tokens[1].token == "é");
    CHECK(tokens[1].bytes == "\xA9");
    CHECK(tokens[1].top[0].token == "é");
    CHECK(tokens[1].top[1].token == "<|im_end|>");
    const openapi::CompletionLogprobs logprobs{tokens, 0};
    CHECK(openapi::end_offset(logprobs) == 7 + 10);
  }
}

TEST_CASE("an answer that is cut within a character has no part of it", "[server][choice]") {
  auto ids = tokenizer().encode("aé漢", false);
  REQUIRE(ids.size() == 6);
  const std::vector<std::string> texts = {"a", "a", "aé", "aé", "aé", "aé漢"};
  for (std::size_t n = 1; n <= ids.size(); ++n) {
    RequestOutput output;
    output.token_ids.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
    output.finish_reason = FinishReason::length;
    CHECK(tell({output}, {}).content == texts[n - 1]);
  }
}

TEST_CASE("bytes that are no text are told as soon as they can be none", "[server][choice]") {
  TokenWords words;
  CHECK(words.next("\xE6").empty());
  words.advance("\xE6");
  CHECK(words.next("\xBC").empty());
  CHECK(words.next("a") == "a");
  CHECK(words.next("\xFF") == "\xE6\xFF");
  words.advance("\xBC");
  CHECK(words.next("\xA2") == "\xE6\xBC\xA2");
  words.advance("\xA2");
  CHECK(words.next("\xA2") == "\xA2");
}

TEST_CASE("log-probabilities of the content alone leave the thought out", "[server][choice]") {
  const OutputFormat format{.reasoning = find_reasoning_format("think"), .starts_inside = true};
  const std::string text = "It is one.\n</think>\n\nThe answer is 19.";
  for (const std::size_t size : {1, 2, 3, 7, 100}) {
    INFO(size);
    const auto tokens = logprobs_of(text, size, {.format = format, .logprobs_of_content = true});
    CHECK(joined(tokens) == "The answer is 19.");
  }
  const auto stopped =
      logprobs_of("one two three", 100, {.stop = {"two"}, .logprobs_of_content = true});
  CHECK(joined(stopped).starts_with("one"));
  CHECK(joined(logprobs_of("one two", 2, {.logprobs_of_content = true})) == "one two");
}
