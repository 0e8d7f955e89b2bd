// What vLLM's clients send beyond OpenAI's parameters.

#include <catch2/catch.hpp>

#include "tests/support/http_client.h"
#include "tests/support/json_pointer.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";

std::string continuing(const std::string& more) {
  return R"({"messages":[{"role":"user","content":"Say it"},{"role":"assistant","content":"one "}],)"
         R"("add_generation_prompt":false,"continue_final_message":true,)" +
         more + "}";
}

}  // namespace

TEST_CASE("a chat's prompt log-probabilities are of all its tokens", "[server][dialect]") {
  TestServer server(answering("Hi"));
  const auto none = post(server.port(), kChat, chat_body(R"("prompt_logprobs":0)"));
  CHECK(pointer(none.body, "/prompt_logprobs/0") == "null");
  CHECK(pointer(none.body, "/prompt_logprobs/1").find("\"rank\":2") != std::string::npos);
  CHECK(pointer(none.body, "/prompt_logprobs/1/7") == "absent");
  const auto two = post(server.port(), kChat, chat_body(R"("prompt_logprobs":2,"n":2)"));
  CHECK(pointer(two.body, "/prompt_logprobs/1/7/logprob") == "-0.25");
  const auto tokens = std::stoul(pointer(two.body, "/usage/prompt_tokens"));
  CHECK(pointer(two.body, "/prompt_logprobs/" + std::to_string(tokens - 1)) != "absent");
  CHECK(pointer(two.body, "/prompt_logprobs/" + std::to_string(tokens)) == "absent");
}

TEST_CASE("echo begins a chat's answer with the message it goes on with", "[server][dialect]") {
  TestServer server(answering("two"));
  const auto whole = post(server.port(), kChat, continuing(R"("echo":true)"));
  CHECK(pointer(whole.body, "/choices/0/message/content") == "\"one two\"");
  const auto bare = post(server.port(), kChat, continuing(R"("echo":false)"));
  CHECK(pointer(bare.body, "/choices/0/message/content") == "\"two\"");
  const auto stream = post(server.port(), kChat, continuing(R"("echo":true,"stream":true)"));
  const auto events = events_of(stream.body);
  CHECK(pointer(events.at(0), "/choices/0/delta/role") == "\"assistant\"");
  CHECK(pointer(events.at(1), "/choices/0/delta/content") == "\"one \"");
  std::string rest;  // in as many chunks as the tokens happen to make
  for (std::size_t i = 2; i < events.size(); ++i) {
    const std::string content = pointer(events[i], "/choices/0/delta/content");
    if (content.starts_with('"')) rest += content.substr(1, content.size() - 2);
  }
  CHECK(rest == "two");
}

TEST_CASE("echo with max_tokens 0 gives the prompt alone, scored", "[server][dialect]") {
  TestServer server(answering("two"));
  const std::string body = R"({"prompt":[[482,483],"one"],"echo":true,"max_tokens":0,"logprobs":1)";
  const auto whole = post(server.port(), kCompletions, body + "}");
  REQUIRE(whole.status == 200);
  CHECK(pointer(whole.body, "/choices/0/logprobs/token_logprobs") == "[null,-2.0]");
  CHECK(pointer(whole.body, "/choices/0/finish_reason") == "\"length\"");
  CHECK(pointer(whole.body, "/choices/0/prompt_logprobs/0") == "null");
  CHECK(pointer(whole.body, "/choices/0/prompt_logprobs/1/483/logprob") == "-2.0");
  CHECK(pointer(whole.body, "/choices/1/text") == "\"one\"");
  CHECK(pointer(whole.body, "/choices/1/logprobs/token_logprobs") == "[null]");
  CHECK(pointer(whole.body, "/usage/completion_tokens") == "0");
  const auto stream = events_of(post(server.port(), kCompletions, body + R"(,"stream":true})").body);
  CHECK(stream.size() == 3);
  CHECK(pointer(stream.at(0), "/choices/0/finish_reason") == "\"length\"");
  CHECK(pointer(stream.at(0), "/choices/0/logprobs/token_logprobs/0") == "null");
  CHECK(post(server.port(), kCompletions, R"({"prompt":"one","max_tokens":0})").status == 400);
}

TEST_CASE("tokens may be named by their ids", "[server][dialect]") {
  TestServer server(answering("one"));
  const auto id = std::to_string(tiny_tokenizer().encode("one", false).front());
  const std::string ask = R"("return_tokens_as_token_ids":true,"max_tokens":1,"logprobs":)";
  const auto chat = post(server.port(), kChat, chat_body(ask + "true"));
  CHECK(pointer(chat.body, "/choices/0/logprobs/content/0/token") == "\"token_id:" + id + "\"");
  CHECK(pointer(chat.body, "/choices/0/logprobs/content/0/bytes") == "[111,110,101]");
  const auto text =
      post(server.port(), kCompletions, R"({"prompt":[482],"echo":true,)" + ask + "0}");
  CHECK(pointer(text.body, "/choices/0/logprobs/tokens") ==
        R"(["token_id:482","token_id:)" + id + "\"]");
}

TEST_CASE("a chat stream's first chunk has the prompt's ids and no tokens used",
          "[server][dialect]") {
  TestServer server(answering("one"));
  const auto reply = post(server.port(), kChat,
                          chat_body(R"("max_tokens":1,"return_token_ids":true,"stream":true,"stream_options":)"
                                    R"({"include_usage":true,"continuous_usage_stats":true})"));
  const auto events = events_of(reply.body);
  CHECK(pointer(events.at(0), "/prompt_token_ids/0") != "absent");
  CHECK(pointer(events.at(0), "/usage/completion_tokens") == "0");
  CHECK(pointer(events.at(1), "/prompt_token_ids") == "absent");
  CHECK(pointer(events.at(1), "/choices/0/token_ids/0") != "absent");
  CHECK(pointer(events.at(1), "/usage/completion_tokens") == "1");
}

TEST_CASE("a prompt is cut to what the context leaves, and no further than it reaches",
          "[server][dialect]") {
  TestServer server(answering("one"));
  std::string ids = "482";
  for (int i = 1; i < 5000; ++i) ids += ",482";
  const std::string body = R"({"prompt":[)" + ids + R"(],"max_tokens":96,)";
  const auto cut = post(server.port(), kCompletions, body + R"("truncate_prompt_tokens":-1})");
  CHECK(pointer(cut.body, "/usage/prompt_tokens") == "4000");
  const auto beyond = post(server.port(), kCompletions, body + R"("truncate_prompt_tokens":4097})");
  CHECK(beyond.status == 400);
  CHECK(pointer(beyond.body, "/error/param") == "\"truncate_prompt_tokens\"");
}

TEST_CASE("a prompt is cut from the side that is asked for", "[server][dialect]") {
  TestServer server(answering("one"));
  const std::string body = R"({"prompt":[5,6,7,8,9],"max_tokens":1,"return_token_ids":true,"truncate_prompt_tokens":2)";
  const auto kept = [&](const std::string& more) {
    return pointer(post(server.port(), kCompletions, body + more + "}").body, "/choices/0/prompt_token_ids");
  };
  CHECK(kept("") == "[8,9]");
  CHECK(kept(R"(,"truncation_side":"left")") == "[8,9]");
  CHECK(kept(R"(,"truncation_side":"right")") == "[5,6]");
}

TEST_CASE("an engine that does not exist cannot be asked for", "[server][dialect]") {
  TestServer server(answering("one"));
  const std::string body = R"({"prompt":"a","max_tokens":1})";
  CHECK(post(server.port(), kCompletions, body, "X-data-parallel-rank: 0\r\n").status == 200);
  for (const std::string rank : {"1", "-1", "x", "0x0", "4294967296"}) {
    INFO(rank);
    const auto refused = post(server.port(), kCompletions, body, "X-Data-Parallel-Rank: " + rank + "\r\n");
    CHECK(refused.status == 400);
    CHECK(pointer(refused.body, "/error/param") == "\"X-data-parallel-rank\"");
  }
}

TEST_CASE("a priority needs the policy that reads it", "[server][dialect]") {
  TestServer server(answering("one"));
  const auto refused = post(server.port(), kChat, chat_body(R"("priority":1)"));
  CHECK(refused.status == 400);
  CHECK(pointer(refused.body, "/error/param") == "\"priority\"");
  CHECK(post(server.port(), kChat, chat_body(R"("priority":0)")).status == 200);
}
