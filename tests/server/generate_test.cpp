// vLLM's token endpoints over HTTP: /inference/v1/generate, and the render endpoints that lead
// there.

#include <catch2/catch.hpp>
#include <future>

#include "tests/support/http_client.h"
#include "tests/support/json_pointer.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr const char* kPath = "/inference/v1/generate";

std::string ids_of(const std::string& text) {
  std::string json = "[";
  for (const TokenId id : tiny_tokenizer().encode(text, false)) {
    json += (json.size() > 1 ? "," : "") + std::to_string(id);
  }
  return json + "]";
}

}  // namespace

TEST_CASE("tokens go in and tokens come out", "[server][generate]") {
  TestServer server(answering("The answer is 19."));
  const auto reply = post(server.port(), kPath,
                          R"({"request_id":"r1","model":"tiny","token_ids":)" + ids_of("What?") +
                              R"(,"sampling_params":{"max_tokens":64,"logprobs":1}})");
  REQUIRE(reply.status == 200);
  CHECK(pointer(reply.body, "/request_id") == "\"r1\"");
  std::string answer = ids_of("The answer is 19.");
  answer.back() = ',';
  CHECK(pointer(reply.body, "/choices/0/token_ids") == answer + "1523]");
  CHECK(pointer(reply.body, "/choices/0/finish_reason") == "\"stop\"");
  CHECK(pointer(reply.body, "/choices/0/logprobs/content/0/logprob") != "absent");
  CHECK(pointer(reply.body, "/choices/0/logprobs/content/0/rank") == "1");
  const std::string first = pointer(reply.body, "/choices/0/token_ids/0");
  CHECK(pointer(reply.body, "/choices/0/logprobs/content/0/token_id") == first);
  CHECK(pointer(reply.body, "/choices/0/logprobs/content/0/top_logprobs/0/token_id") == first);
  CHECK(pointer(reply.body, "/choices/0/text") == "absent");
  CHECK(pointer(reply.body, "/output_mode") == "\"tokens\"");
  CHECK(pointer(reply.body, "/prompt_token_ids") == "null");
  CHECK(pointer(reply.body, "/usage/completion_tokens") != "absent");
  CHECK(pointer(reply.body, "/prompt_logprobs") == "null");
}

TEST_CASE("text comes beside the tokens where it is asked for", "[server][generate]") {
  TestServer server(answering("The answer is 19."));
  const std::string body = R"({"token_ids":[5,6],"output_mode":"text","return_token_ids":true,)"
                           R"("sampling_params":{"max_tokens":64,"logprobs":1,"stop":"19"})";
  const auto reply = post(server.port(), kPath, body + "}");
  INFO(reply.body);
  CHECK(pointer(reply.body, "/choices/0/text") == "\"The answer is \"");
  CHECK(pointer(reply.body, "/choices/0/stop_reason") == "\"19\"");
  CHECK(pointer(reply.body, "/choices/0/logprobs/content/0/token") == "\"The\"");
  CHECK(pointer(reply.body, "/prompt_token_ids") == "[5,6]");
  const auto events = events_of(post(server.port(), kPath, body + R"(,"stream":true})").body);
  REQUIRE(events.size() >= 2);
  CHECK(pointer(events[0], "/prompt_token_ids") == "[5,6]");
  CHECK(pointer(events[0], "/output_mode") == "\"text\"");
  CHECK(pointer(events[0], "/choices/0/text") != "absent");
  CHECK(pointer(events[events.size() - 2], "/choices/0/stop_reason") == "\"19\"");
}

TEST_CASE("what a token request has under another name is refused by name", "[server][generate]") {
  TestServer server(answering("x"));
  const auto param = [&](const std::string& members) {
    const auto reply = post(server.port(), kPath, "{" + members + "}");
    INFO(reply.body);
    CHECK(reply.status == 400);
    return pointer(reply.body, "/error/param");
  };
  const std::string rest = R"("token_ids":[5],"sampling_params":{"max_tokens":2)";
  CHECK(param(rest + R"(},"response_format":{"type":"json_object"})") == "\"response_format\"");
  CHECK(param(rest + R"(},"guided_regex":"a")") == "\"guided_regex\"");
  CHECK(param(rest + R"(},"output_mode":"derender")") == "\"output_mode\"");
  CHECK(param(rest + R"(},"output_mode":"zz")") == "\"output_mode\"");
  CHECK(param(rest + R"(},"reasoning_ended":false)") == "\"reasoning_ended\"");
  CHECK(param(rest + R"(,"logprob_token_ids":[5]})") == "\"sampling_params.logprob_token_ids\"");
  CHECK(param(rest + R"(,"guided_decoding":{"regex":"a"}})") == "\"sampling_params.guided_decoding\"");
  CHECK(param(R"("token_ids":[99999999],"sampling_params":{"max_tokens":2})") == "\"token_ids\"");
}

TEST_CASE("tokens come out as a stream", "[server][generate][stream]") {
  TestServer server(answering("one two three"));
  const auto reply =
      post(server.port(), kPath,
           R"({"token_ids":[5,6],"stream":true,"stream_options":{"include_usage":true},)"
           R"("sampling_params":{"n":2,"max_tokens":3}})");
  REQUIRE(reply.status == 200);
  const auto events = events_of(reply.body);
  REQUIRE(events.size() >= 4);
  CHECK(events.back() == "[DONE]");
  CHECK(pointer(events[events.size() - 2], "/usage/completion_tokens") == "6");
  int lengths = 0;
  for (const auto& event : events) {
    if (event != "[DONE]" && pointer(event, "/choices/0/finish_reason") == "\"length\"") ++lengths;
  }
  CHECK(lengths == 2);
}

TEST_CASE("what could not run is not rendered", "[server][generate]") {
  TestServer server(answering("Yes."));
  for (const std::string body : {R"({"prompt":""})", R"({"prompt":[99999]})", R"({"prompt":"a","top_p":5e-324})",
                                 R"({"prompt":"a","repetition_penalty":5e-324})", R"({"prompt":"a","min_p":2})"}) {
    const auto rendered = post(server.port(), "/v1/completions/render", body);
    const auto run = post(server.port(), "/v1/completions", body);
    INFO(body);
    CHECK(rendered.status == 400);
    CHECK(rendered.body == run.body);
  }
}

TEST_CASE("what was rendered generates what the request itself does", "[server][generate]") {
  std::vector<AddRequest> seen;
  std::mutex mutex;
  TestServerOptions options = answering("Yes.");
  options.engine.rejects = [&](const AddRequest& add) {
    const std::scoped_lock lock(mutex);
    seen.push_back(add);
    return false;
  };
  TestServer server(std::move(options));
  const std::string members =
      R"("temperature":0.25,"top_p":0.5,"top_k":7,"seed":3,"max_tokens":9,"min_tokens":1,"stop":["zzz"],)"
      R"("stop_token_ids":[9],"logit_bias":{"4":1.5},"presence_penalty":0.5,"cache_salt":"s")";
  struct Case {
    const char* path;
    std::string body;
    bool is_list;
  };
  for (const Case& c : {Case{"/v1/chat/completions", chat_body(members), false},
                        Case{"/v1/completions", R"({"prompt":"Once",)" + members + "}", true}}) {
    seen.clear();
    const auto rendered = post(server.port(), std::string(c.path) + "/render", c.body);
    INFO(rendered.body);
    REQUIRE(rendered.status == 200);
    CHECK(seen.empty());
    const std::string request = c.is_list ? pointer(rendered.body, "/0") : rendered.body;
    REQUIRE(post(server.port(), kPath, request).status == 200);
    REQUIRE(post(server.port(), c.path, c.body).status == 200);
    REQUIRE(seen.size() == 2);
    CHECK(seen[0].prompt == seen[1].prompt);
    CHECK(seen[0].cache_salt == seen[1].cache_salt);
    CHECK(seen[0].sampling.temperature == seen[1].sampling.temperature);
    CHECK(seen[0].sampling.top_p == seen[1].sampling.top_p);
    CHECK(seen[0].sampling.top_k == seen[1].sampling.top_k);
    CHECK(seen[0].sampling.seed == seen[1].sampling.seed);
    CHECK(seen[0].sampling.max_tokens == seen[1].sampling.max_tokens);
    CHECK(seen[0].sampling.min_tokens == seen[1].sampling.min_tokens);
    CHECK(seen[0].sampling.stop_token_ids == seen[1].sampling.stop_token_ids);
    CHECK(seen[0].sampling.logit_bias == seen[1].sampling.logit_bias);
    CHECK(seen[0].sampling.presence_penalty == seen[1].sampling.presence_penalty);
  }
}

TEST_CASE("what a token request gets wrong is named", "[server][generate]") {
  struct Case {
    const char *json, *param;
  };
  TestServer server;
  for (const Case& c : {
           Case{R"({"sampling_params":{}})", "token_ids"},
           Case{R"({"token_ids":[1]})", "sampling_params"},
           Case{R"({"token_ids":[],"sampling_params":{}})", "token_ids"},
           Case{R"({"token_ids":["a"],"sampling_params":{}})", "token_ids[0]"},
           Case{R"({"token_ids":"a","sampling_params":{}})", "token_ids"},
           Case{R"({"token_ids":[1],"sampling_params":7})", "sampling_params"},
           Case{R"({"token_ids":[1],"sampling_params":{"n":0}})", "sampling_params.n"},
           Case{R"({"token_ids":[1],"sampling_params":{"logprobs":21}})",
                "sampling_params.logprobs"},
           Case{R"({"token_ids":[1],"sampling_params":{"max_tokens":0}})", "max_tokens"},
           Case{R"({"token_ids":[1],"sampling_params":{},"features":{"a":1}})", "features"},
       }) {
    INFO(c.json);
    const auto reply = post(server.port(), kPath, c.json);
    INFO(reply.body);
    CHECK(reply.status == 400);
    CHECK(pointer(reply.body, "/error/param") == '"' + std::string(c.param) + '"');
  }
}

TEST_CASE("a suffix is refused by name where the tokenizer cannot say it", "[server][fim]") {
  TestServer server;
  const auto reply = post(server.port(), "/v1/completions", R"({"prompt":"a","suffix":"b"})");
  CHECK(reply.status == 400);
  CHECK(pointer(reply.body, "/error/param") == "\"suffix\"");
  CHECK(post(server.port(), "/v1/completions", R"({"prompt":"a","suffix":"","max_tokens":1})")
            .status == 200);
  for (const char* more : {R"("echo":true)", R"("truncate_prompt_tokens":3)"}) {
    const auto both = post(server.port(), "/v1/completions",
                           R"({"prompt":"a","suffix":"b",)" + std::string(more) + "}");
    CHECK(pointer(both.body, "/error/param") == "\"suffix\"");
  }
}

TEST_CASE("what the server knows of itself can be asked for", "[server][admin]") {
  TestServerOptions options;
  options.config.api_keys = {"secret"};
  options.defaults.tokenizer_info = R"({"tokenizer_class":"T"})";
  TestServer server(std::move(options));
  const std::string key = "X-Api-Key: secret\r\n";
  CHECK(get(server.port(), "/tokenizer_info").status == 401);
  CHECK(get(server.port(), "/tokenizer_info", key).body == R"({"tokenizer_class":"T"})");
  const auto info = get(server.port(), "/server_info", key);
  CHECK(pointer(info.body, "/config/max_num_seqs") != "absent");
  CHECK(pointer(info.body, "/models/data/0/engines/0/num_gpu_blocks") == "257");
  CHECK(get(server.port(), "/is_sleeping", key).body == R"({"is_sleeping":false})");
  for (const char* path : {"/sleep", "/wake_up"}) {
    const auto refused = post(server.port(), path, "", key);
    CHECK(refused.status == 400);
    CHECK(pointer(refused.body, "/error/message").size() > 30);
  }
}

TEST_CASE("the prefix cache is forgotten when nobody holds it", "[server][admin]") {
  TestServerOptions options;
  options.config.api_keys = {"secret"};
  options.config.admin_api_keys = {"boss"};
  TestServer server(std::move(options));
  CHECK(post(server.port(), "/reset_prefix_cache", "", "X-Api-Key: secret\r\n").status == 401);
  const auto done = post(server.port(), "/reset_prefix_cache", "", "X-Api-Key: boss\r\n");
  CHECK(done.status == 200);
  CHECK(pointer(done.body, "/status") == "\"reset\"");
}

TEST_CASE("a model that generates refuses what pooling models serve, by name", "[server][pooling]") {
  TestServer server;
  for (const char* path : {"/v1/embeddings", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank"}) {
    const auto refused = post(server.port(), path, R"({"input":"a"})");
    CHECK(refused.status == 400);
    CHECK(pointer(refused.body, "/error/message").find("PoolingOptions::runner pooling") !=
          std::string::npos);
  }
}

TEST_CASE("the contract can be read without a key", "[server][admin]") {
  TestServerOptions options;
  options.config.api_keys = {"secret"};
  TestServer server(std::move(options));
  const auto contract = get(server.port(), "/openapi.json");
  CHECK(contract.status == 200);
  CHECK(pointer(contract.body, "/openapi") == "\"3.1.0\"");
  CHECK(pointer(contract.body, "/paths/~1v1~1messages/post/operationId") == "\"post_messages\"");
  const auto page = get(server.port(), "/docs");
  CHECK(page.headers.at("content-type") == "text/html; charset=utf-8");
  CHECK(get(server.port(), "/ui/docs.js").status == 200);
}
