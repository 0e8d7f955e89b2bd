// What vLLM adds to OpenAI's Responses API, and where the two meet.

#include <catch2/catch.hpp>

#include "tests/server/responses_requests.h"
#include "tests/support/json_pointer.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr const char* kPath = kResponsesPath;

}  // namespace

TEST_CASE("who asks for effort asks for thinking", "[server][responses]") {
  const std::string on = R"("chat_template_kwargs":{"enable_thinking":true})";
  const std::string off = R"("chat_template_kwargs":{"enable_thinking":false})";
  CHECK(prompt_of(kPath, body(R"("reasoning":{"effort":"high"})")) == prompt_of(kPath, body(on)));
  CHECK(prompt_of(kPath, body(R"("reasoning":{"effort":"none"})")) == prompt_of(kPath, body(off)));
  CHECK(prompt_of(kPath, body(R"("reasoning":{"effort":"high"},)" + off)) ==
        prompt_of(kPath, body(off)));
}

TEST_CASE("the tokens of a response's prompt are counted", "[server][responses]") {
  TestServer server;
  const auto count = post(server.port(), "/v1/responses/input_tokens", body());
  INFO(count.body);
  CHECK(pointer(count.body, "/object") == "\"response.input_tokens\"");
  CHECK(pointer(count.body, "/input_tokens") == std::to_string(prompt_of(kPath, body()).size()));
  CHECK(post(server.port(), "/v1/responses/input_tokens", "{}").status == 400);
}

TEST_CASE("a demanded call comes before the format of text", "[server][responses]") {
  TestServer server(answering(kCall));
  const std::string format =
      R"(,"text":{"format":{"type":"json_schema","name":"a","schema":{"type":"object"}}})";
  const auto reply = post(server.port(), kPath, body(kTools + R"(,"tool_choice":"required")" + format));
  INFO(reply.body);
  CHECK(reply.status == 200);
}

TEST_CASE("what vLLM adds to a response's sampling is heard", "[server][responses]") {
  const SamplingParams sampling =
      request_of(kPath,
                 body(R"("logit_bias":{"5":100},"stop_token_ids":[24],"ignore_eos":true)"))
          .sampling;
  CHECK(sampling.logit_bias.size() == 1);
  CHECK(sampling.stop_token_ids == std::vector<TokenId>{24});
}

TEST_CASE("a response leaves its thought out where that is asked", "[server][responses]") {
  TestServer server(answering("<think>\nSo.\n</think>\n\nIt is 19."));
  const std::string more = R"("chat_template_kwargs":{"enable_thinking":true})";
  const auto whole = post(server.port(), kPath, body(more));
  INFO(whole.body);
  CHECK(pointer(whole.body, "/output/0/type") == "\"reasoning\"");
  const auto bare = post(server.port(), kPath, body(more + R"(,"include_reasoning":false)"));
  INFO(bare.body);
  CHECK(pointer(bare.body, "/output/0/type") == "\"message\"");
  CHECK(pointer(bare.body, "/output/1") == "absent");
}

TEST_CASE("a message that was cut off is continued", "[server][responses]") {
  const auto input = [](const std::string& status) {
    return R"({"input":[{"role":"user","content":"Hi"},{"type":"message","role":"assistant",)"
           R"("status":")" +
           status + R"(","content":[{"type":"output_text","text":"I am"}]}]})";
  };
  const auto chat = [](const std::string& more) {
    return R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"I am"}])" +
           more + "}";
  };
  const auto continued =
      prompt_of("/v1/chat/completions",
                chat(R"(,"add_generation_prompt":false,"continue_final_message":true)"));
  CHECK(prompt_of(kPath, input("incomplete")) == continued);
  CHECK(prompt_of(kPath, input("in_progress")) == continued);
  CHECK(prompt_of(kPath, input("completed")) == prompt_of("/v1/chat/completions", chat("")));
}
