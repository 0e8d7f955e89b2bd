#include <catch2/catch.hpp>
#include <cmath>

#include "openapi/dto_json.h"

using namespace quire;
using namespace quire::openapi;

TEST_CASE("a chat response has vLLM's shape", "[openapi][write]") {
  ChatChoice choice{.index = 0, .content = "Hi", .reasoning = "hm"};
  choice.tool_calls = {{"c1", {"f", R"({"x":1})"}}};
  choice.finish_reason = "tool_calls";
  ChatCompletionResponse response{.id = "chatcmpl-1", .created = 5, .model = "tiny"};
  response.choices = {choice};
  response.usage = {.prompt_tokens = 3, .completion_tokens = 2, .cached_tokens = 1};
  CHECK(to_json(response) ==
        R"({"id":"chatcmpl-1","object":"chat.completion","created":5,"model":"tiny","choices":[)"
        R"({"index":0,"message":{"role":"assistant","content":"Hi","refusal":null,"annotations":null,)"
        R"("audio":null,"function_call":null,"reasoning":"hm",)"
        R"("reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function",)"
        R"("function":{"name":"f","arguments":"{\"x\":1}"}}]},"logprobs":null,)"
        R"("finish_reason":"tool_calls","stop_reason":null,"token_ids":null}],)"
        R"("service_tier":null,"system_fingerprint":null,"prompt_logprobs":null,)"
        R"("prompt_token_ids":null,"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2,)"
        R"("prompt_tokens_details":{"cached_tokens":1}},"kv_transfer_params":null})");
}

TEST_CASE("log-probabilities are written in both dialects", "[openapi][write]") {
  const TopLogprob accented{"é", "\xC3\xA9", -0.5, 7};
  const TokenLogprob token{accented, {accented, {"a", "a", -1, 8}}, 1};
  std::string chat, completion;
  append_chat_logprobs(chat, {token});
  append_completion_logprobs(completion, {{token, token}, 10});
  CHECK(
      chat ==
      R"({"content":[{"token":"é","logprob":-0.5,"bytes":[195,169],"top_logprobs":[)"
      R"({"token":"é","logprob":-0.5,"bytes":[195,169]},{"token":"a","logprob":-1.0,"bytes":[97]}]}]})");
  CHECK(completion == R"({"text_offset":[10,11],"token_logprobs":[-0.5,-0.5],"tokens":["é","é"],)"
                      R"("top_logprobs":[{"é":-0.5,"a":-1.0},{"é":-0.5,"a":-1.0}]})");
}

TEST_CASE("the chosen token is among the most probable ones, and none comes twice",
          "[openapi][write]") {
  const TopLogprob a{"a", "a", -0.1, 1}, same{"a", "a", -0.2, 2}, never{"b", "b", -INFINITY, 3};
  std::string out;
  append_completion_logprobs(out, {{{never, {a, same}, 9}}, 0});
  CHECK(out == R"({"text_offset":[0],"token_logprobs":[-9999.0],"tokens":["b"],)"
               R"("top_logprobs":[{"b":-9999.0,"a":-0.1}]})");
}

TEST_CASE("prompt log-probabilities are maps from token ids", "[openapi][write]") {
  ChatCompletionResponse response;
  const TopLogprob best{"token_id:5", "x", -0.25, 5}, other{"token_id:6", "\"", -2, 6};
  response.prompt_logprobs = {{other, {best, other}, 2}, {best, {}, 1}};
  CHECK_THAT(to_json(response),
             Catch::Contains(
                 R"("prompt_logprobs":[null,{"6":{"logprob":-2.0,"rank":2,"decoded_token":"\""},)"
                 R"("5":{"logprob":-0.25,"rank":1,"decoded_token":"x"}},)"
                 R"({"5":{"logprob":-0.25,"rank":1,"decoded_token":"x"}}])"));
}

TEST_CASE("a completion, an error and the small replies", "[openapi][write]") {
  CompletionResponse response{.id = "cmpl-1", .created = 5, .model = "tiny"};
  response.choices = {{.index = 1, .text = "x", .finish_reason = "stop", .stop_reason = "\"END\""}};
  CHECK(
      to_json(response) ==
      R"({"id":"cmpl-1","object":"text_completion","created":5,"model":"tiny","choices":[)"
      R"({"index":1,"text":"x","logprobs":null,"finish_reason":"stop","stop_reason":"END","token_ids":null,)"
      R"("prompt_token_ids":null,"prompt_logprobs":null}],"service_tier":null,"system_fingerprint":null,)"
      R"("usage":{"prompt_tokens":0,"total_tokens":0,"completion_tokens":0},"kv_transfer_params":null})");
  CHECK(error_json("no \"x\"", "NotFoundError", "model", 404) ==
        R"({"error":{"message":"no \"x\"","type":"NotFoundError","param":"model","code":404}})");
  CHECK(error_json("m", "t", "", 500) ==
        R"({"error":{"message":"m","type":"t","param":null,"code":500}})");
  CHECK(to_json(TokenizeResponse{{1, 2}, 64, std::nullopt}) ==
        R"({"count":2,"max_model_len":64,"tokens":[1,2],"token_strs":null})");
  CHECK(detokenize_json("a") == R"({"prompt":"a"})");
}
