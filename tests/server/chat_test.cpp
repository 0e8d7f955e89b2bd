#include <catch2/catch.hpp>

#include "tests/support/http_client.h"
#include "tests/support/json_pointer.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr const char* kPath = "/v1/chat/completions";

const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"get_time","parameters":{"type":"object"}}}])";
const std::string kCall =
    "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";

}  // namespace

TEST_CASE("a chat completion has its shape, its text and its usage", "[server][chat]") {
  TestServer server(answering("The answer is 19."));
  const auto reply =
      post(server.port(), kPath, chat_body(R"("model":"other-name")", "What is 12 + 7?"),
           "X-Request-Id: abc-123\r\n");
  REQUIRE(reply.status == 200);
  CHECK(reply.headers.at("content-type") == "application/json");
  CHECK(reply.headers.at("x-request-id") == "abc-123");
  CHECK(pointer(reply.body, "/id") == "\"chatcmpl-abc-123\"");
  CHECK(pointer(reply.body, "/object") == "\"chat.completion\"");
  CHECK(pointer(reply.body, "/model") == "\"other-name\"");
  CHECK(pointer(reply.body, "/choices/0/message/role") == "\"assistant\"");
  CHECK(pointer(reply.body, "/choices/0/message/content") == "\"The answer is 19.\"");
  CHECK(pointer(reply.body, "/choices/0/finish_reason") == "\"stop\"");
  CHECK(pointer(reply.body, "/choices/0/stop_reason") == "null");
  const auto answer = tiny_tokenizer().encode("The answer is 19.", false).size() + 1;
  CHECK(pointer(reply.body, "/usage/completion_tokens") == std::to_string(answer));
  const auto prompt = tiny_tokenizer().encode(
      "<|im_start|>user\nWhat is 12 + 7?<|im_end|>\n<|im_start|>assistant\n", false);
  CHECK(pointer(reply.body, "/usage/prompt_tokens") == std::to_string(prompt.size()));
}

TEST_CASE("the defaults of the model folder reach the engine, the request's words win",
          "[server][chat]") {
  std::promise<AddRequest> seen;
  auto request = seen.get_future();
  TestServerOptions options;
  options.defaults.temperature = 0.25f;
  options.defaults.top_p = 0.5f;
  options.engine_config.scheduler.policy = SchedulingPolicy::priority;
  options.engine.rejects = [&seen](const AddRequest& add) {
    seen.set_value(add);
    return false;
  };
  TestServer server(std::move(options));
  REQUIRE(
      post(
          server.port(), kPath,
          chat_body(
              R"("top_p":0.75,"seed":5,"max_tokens":3,"priority":-2,"cache_salt":"s","stop_token_ids":[7],)"
              R"("logit_bias":{"9":2},"min_tokens":1,"kv_transfer_params":{"do_remote_decode":true})"))
          .status == 200);
  const AddRequest add = request.get();
  CHECK(add.sampling.temperature == 0.25f);
  CHECK(add.sampling.top_p == 0.75f);
  CHECK(add.sampling.seed == 5);
  CHECK(add.sampling.max_tokens == 3);
  CHECK(add.sampling.min_tokens == 1);
  CHECK(add.sampling.stop_token_ids == std::vector<TokenId>{7});
  CHECK(add.sampling.logit_bias.size() == 1);
  CHECK(add.priority == -2);
  CHECK(add.cache_salt == "s");
  CHECK(add.transfer_params == R"({"do_remote_decode":true})");
  CHECK(add.eos_token_ids == std::vector<TokenId>{1523});
}

TEST_CASE("several choices have seeds and indices of their own", "[server][chat]") {
  TestServerOptions options;
  options.engine.next_token = [](const AddRequest& add, int) {
    return tiny_tokenizer().encode(std::to_string(*add.sampling.seed), false).front();
  };
  TestServer server(std::move(options));
  const auto reply = post(server.port(), kPath, chat_body(R"("n":3,"seed":4,"max_tokens":1)"));
  REQUIRE(reply.status == 200);
  CHECK(pointer(reply.body, "/choices/0/message/content") == "\"4\"");
  CHECK(pointer(reply.body, "/choices/1/message/content") == "\"5\"");
  CHECK(pointer(reply.body, "/choices/2/message/content") == "\"6\"");
  CHECK(pointer(reply.body, "/choices/2/index") == "2");
  CHECK(pointer(reply.body, "/choices/0/finish_reason") == "\"length\"");
  CHECK(pointer(reply.body, "/usage/completion_tokens") == "3");
}

TEST_CASE("a stop string ends the answer and the engine's work", "[server][chat]") {
  TestServer server(answering("one two three four five six seven eight nine ten"));
  const auto reply = post(server.port(), kPath, chat_body(R"("stop":["three"])"));
  CHECK(pointer(reply.body, "/choices/0/message/content") == "\"one two \"");
  CHECK(pointer(reply.body, "/choices/0/stop_reason") == "\"three\"");
  CHECK(eventually([&] { return server.engine().num_live() == 0; }));
  const auto kept =
      post(server.port(), kPath, chat_body(R"("stop":"three","include_stop_str_in_output":true)"));
  CHECK(pointer(kept.body, "/choices/0/message/content") == "\"one two three\"");
}

TEST_CASE("tool calls and reasoning are told apart from content", "[server][chat]") {
  TestServer server(answering("<think>\nthe time\n</think>\n\n" + kCall));
  const auto reply = post(server.port(), kPath, chat_body(kTools));
  REQUIRE(reply.status == 200);
  CHECK(pointer(reply.body, "/choices/0/finish_reason") == "\"tool_calls\"");
  CHECK(pointer(reply.body, "/choices/0/message/tool_calls/0/type") == "\"function\"");
  CHECK(pointer(reply.body, "/choices/0/message/tool_calls/0/function/name") == "\"get_time\"");
  CHECK(pointer(reply.body, "/choices/0/message/tool_calls/0/function/arguments") ==
        R"("{\"city\": \"Oslo\"}")");
  CHECK(pointer(reply.body, "/choices/0/message/reasoning").find("the time") != std::string::npos);
  CHECK(pointer(reply.body, "/choices/0/message/reasoning") ==
        pointer(reply.body, "/choices/0/message/reasoning_content"));

  const auto none = post(server.port(), kPath, chat_body(kTools + R"(,"tool_choice":"none")"));
  CHECK(pointer(none.body, "/choices/0/finish_reason") == "\"stop\"");
  CHECK(pointer(none.body, "/choices/0/message/content").find("<tool_call>") != std::string::npos);
  const auto hidden = post(server.port(), kPath, chat_body(R"("include_reasoning":false)"));
  CHECK(pointer(hidden.body, "/choices/0/message/reasoning") == "null");
}

TEST_CASE("a call that is demanded is not cut by a stop string", "[server][chat]") {
  TestServer server(answering(kCall));
  const auto reply = post(server.port(), kPath,
                          chat_body(kTools + R"(,"tool_choice":"required","stop":["Oslo"])"));
  INFO(reply.body);
  CHECK(pointer(reply.body, "/choices/0/finish_reason") == "\"tool_calls\"");
  CHECK(pointer(reply.body, "/choices/0/message/tool_calls/0/function/name") == "\"get_time\"");
  const auto free = post(server.port(), kPath, chat_body(kTools + R"(,"stop":["Oslo"])"));
  CHECK(pointer(free.body, "/choices/0/stop_reason") == "\"Oslo\"");
}

TEST_CASE("parallel_tool_calls false keeps the first call alone", "[server][chat]") {
  TestServer server(answering(kCall + "\n" + kCall));
  const auto both = post(server.port(), kPath, chat_body(kTools));
  CHECK(pointer(both.body, "/choices/0/message/tool_calls/1/function/name") == "\"get_time\"");
  const auto one =
      post(server.port(), kPath, chat_body(kTools + R"(,"parallel_tool_calls":false)"));
  CHECK(pointer(one.body, "/choices/0/message/tool_calls/0/function/name") == "\"get_time\"");
  CHECK(pointer(one.body, "/choices/0/message/tool_calls/1") == "absent");
}

TEST_CASE("log-probabilities and token ids come when asked for", "[server][chat]") {
  TestServer server(answering("Hi there"));
  const auto reply =
      post(server.port(), kPath, chat_body(R"("logprobs":true,"return_token_ids":true)"));
  REQUIRE(reply.status == 200);
  CHECK(pointer(reply.body, "/choices/0/logprobs/content/0/logprob") == "-0.5");
  CHECK(pointer(reply.body, "/choices/0/logprobs/content/0/top_logprobs") == "[]");
  const auto ids = tiny_tokenizer().encode("Hi there", false);
  CHECK(pointer(reply.body, "/choices/0/token_ids/0") == std::to_string(ids[0]));
  CHECK(pointer(reply.body, "/prompt_token_ids/0") != "absent");
  const auto bare = post(server.port(), kPath, chat_body());
  CHECK(pointer(bare.body, "/choices/0/logprobs") == "null");
  CHECK(pointer(bare.body, "/choices/0/token_ids") == "null");
  CHECK(pointer(bare.body, "/prompt_token_ids") == "null");
  CHECK(pointer(bare.body, "/prompt_logprobs") == "null");
}

TEST_CASE("what is not offered is refused by name", "[server][chat]") {
  TestServer server;
  struct Case {
    std::string members;
    int status;
    std::string param;
  };
  for (const auto& c :
       std::vector<Case>{{R"("model":"gpt-9")", 404, "model"},
                         {R"("response_format":{"type":"json_object"},"guided_regex":"a+")", 400,
                          "guided_regex"},
                         {R"("thinking_budget":7,"logit_bias":{"x":1})", 400, "logit_bias"},
                         {R"("use_beam_search":true)", 400, "use_beam_search"},
                         {R"("chat_template":"{{ 1 }}")", 400, "chat_template"},
                         {R"("temperature":-1)", 400, "temperature"},
                         {R"("max_tokens":-1)", 400, "max_tokens"},
                         {R"("max_tokens":5000)", 400, "max_tokens"},
                         {R"("max_tokens":4096)", 400, "input_tokens"}}) {
    INFO(c.members);
    const auto reply = post(server.port(), kPath, chat_body(c.members));
    CHECK(reply.status == c.status);
    CHECK(pointer(reply.body, "/error/param") == "\"" + c.param + "\"");
    CHECK(pointer(reply.body, "/error/code") == std::to_string(c.status));
  }
  CHECK(post(server.port(), kPath,
             chat_body(R"("response_format":{"type":"text"},"service_tier":"x")"))
            .status == 200);
  CHECK(server.engine().num_added() == 1);
}
