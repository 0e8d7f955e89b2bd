#include <catch2/catch.hpp>

#include "tests/support/http_client.h"
#include "tests/support/json_pointer.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr const char* kPath = "/v1/completions";

// Answers with the prompt's tokens, one after the other.
TestServerOptions echoing() {
  TestServerOptions options;
  options.engine.next_token = [](const AddRequest& add, int index) {
    return add.prompt[static_cast<std::size_t>(index) % add.prompt.size()];
  };
  return options;
}

}  // namespace

TEST_CASE("each of several prompts has its choices, in order", "[server][completions]") {
  TestServer server(echoing());
  const auto reply =
      post(server.port(), kPath, R"({"prompt":["one","falcon"],"n":2,"max_tokens":1})");
  REQUIRE(reply.status == 200);
  CHECK(pointer(reply.body, "/object") == "\"text_completion\"");
  CHECK(pointer(reply.body, "/choices/0/text") == "\"one\"");
  CHECK(pointer(reply.body, "/choices/1/text") == "\"one\"");
  CHECK(pointer(reply.body, "/choices/2/text") == "\"falcon\"");
  CHECK(pointer(reply.body, "/choices/3/index") == "3");
  CHECK(pointer(reply.body, "/usage/prompt_tokens") == "2");
  CHECK(pointer(reply.body, "/usage/completion_tokens") == "4");
  CHECK(pointer(reply.body, "/id").starts_with("\"cmpl-"));
}

TEST_CASE("token ids are a prompt too, and sixteen tokens the default", "[server][completions]") {
  TestServer server(echoing());
  const auto ids = tiny_tokenizer().encode("one two", false);
  std::string list;
  for (const TokenId id : ids) list += (list.empty() ? "" : ",") + std::to_string(id);
  const auto reply = post(server.port(), kPath, R"({"prompt":[)" + list + "]}");
  REQUIRE(reply.status == 200);
  CHECK(pointer(reply.body, "/usage/completion_tokens") == "16");
  CHECK(pointer(reply.body, "/choices/0/text").starts_with("\"one twoone two"));
  CHECK(post(server.port(), kPath, R"({"prompt":[99999]})").status == 400);
  CHECK(post(server.port(), kPath, R"({"prompt":""})").status == 400);
}

TEST_CASE("echo puts the prompt first, and offsets count from it", "[server][completions]") {
  TestServer server(echoing());
  const auto reply = post(server.port(), kPath, R"({"prompt":"one","echo":true,"max_tokens":1})");
  CHECK(pointer(reply.body, "/choices/0/text") == "\"oneone\"");
  const auto logprobs =
      post(server.port(), kPath, R"({"prompt":"one","logprobs":0,"max_tokens":2})");
  CHECK(pointer(logprobs.body, "/choices/0/logprobs/tokens") == R"(["one","one"])");
  CHECK(pointer(logprobs.body, "/choices/0/logprobs/text_offset") == "[0,3]");
  CHECK(pointer(logprobs.body, "/choices/0/logprobs/token_logprobs") == "[-0.5,-0.5]");
  const auto both =
      post(server.port(), kPath, R"({"prompt":[482,482],"echo":true,"logprobs":1,"max_tokens":1})");
  CHECK(pointer(both.body, "/choices/0/logprobs/token_logprobs/0") == "null");
  CHECK(pointer(both.body, "/choices/0/logprobs/tokens/0") == "\"one\"");
}

TEST_CASE("the last prompt tokens are kept when it is to be truncated", "[server][completions]") {
  TestServer server(echoing());
  const auto reply =
      post(server.port(), kPath,
           R"({"prompt":"one two three","truncate_prompt_tokens":1,"max_tokens":1})");
  CHECK(pointer(reply.body, "/usage/prompt_tokens") == "1");
}

TEST_CASE("a completion streams its text and its usage", "[server][completions]") {
  TestServer server(echoing());
  const auto reply = post(server.port(), kPath,
                          R"({"prompt":"one","echo":true,"max_tokens":3,"stream":true,)"
                          R"("stream_options":{"include_usage":true}})");
  REQUIRE(reply.status == 200);
  const auto events = events_of(reply.body);
  REQUIRE(events.size() >= 3);
  std::string text;
  for (std::size_t i = 0; i + 2 < events.size(); ++i) {
    const std::string piece = pointer(events[i], "/choices/0/text");
    text += piece.substr(1, piece.size() - 2);
  }
  CHECK(text == "oneoneoneone");
  CHECK(pointer(events[events.size() - 3], "/choices/0/finish_reason") == "\"length\"");
  CHECK(pointer(events[events.size() - 2], "/choices") == "[]");
  CHECK(pointer(events[events.size() - 2], "/usage/completion_tokens") == "3");
  CHECK(events.back() == "[DONE]");
}
