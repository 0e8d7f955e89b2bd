#include <simdjson.h>
#include <catch2/catch.hpp>

#include "tests/support/http_client.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

std::string pointer(const std::string& json, std::string_view path) {
  simdjson::dom::parser parser;
  return simdjson::minify(parser.parse(json).at_pointer(path).value());
}

}  // namespace

TEST_CASE("probes answer with bare statuses", "[server][routes]") {
  TestServer server;
  for (const char* path : {"/health", "/health/live", "/ping"}) {
    INFO(path);
    const auto reply = get(server.port(), path);
    CHECK(reply.status == 200);
    CHECK(reply.body.empty());
  }
  CHECK(post(server.port(), "/ping", "").status == 200);
  CHECK(pointer(get(server.port(), "/version").body, "/version") ==
        "\"" + std::string(quire_version()) + "\"");
  CHECK(pointer(get(server.port(), "/load").body, "/server_load") == "0");
}

TEST_CASE("the models are listed as vLLM lists them", "[server][routes]") {
  TestServer server;
  const auto reply = get(server.port(), "/v1/models");
  CHECK(reply.status == 200);
  CHECK(pointer(reply.body, "/object") == "\"list\"");
  CHECK(pointer(reply.body, "/data/0/id") == "\"tiny\"");
  CHECK(pointer(reply.body, "/data/0/max_model_len") == "4096");
  CHECK(pointer(reply.body, "/data/0/permission/0/object") == "\"model_permission\"");
  CHECK(pointer(reply.body, "/data/0/engines/0/block_size") == "16");
  CHECK(pointer(reply.body, "/data/0/engines/0/num_gpu_blocks") == "257");
  CHECK(pointer(reply.body, "/data/1/id") == "\"other-name\"");
  CHECK(pointer(get(server.port(), "/v1/models/other-name").body, "/id") == "\"other-name\"");
  const auto missing = get(server.port(), "/v1/models/none");
  CHECK(missing.status == 404);
  CHECK(pointer(missing.body, "/error/type") == "\"NotFoundError\"");
}

TEST_CASE("text becomes tokens and comes back", "[server][routes]") {
  TestServer server;
  const auto tokens =
      post(server.port(), "/tokenize", R"({"prompt":"What is 12 + 7?","return_token_strs":true})");
  REQUIRE(tokens.status == 200);
  const auto ids = tiny_tokenizer().encode("What is 12 + 7?", true);
  CHECK(pointer(tokens.body, "/count") == std::to_string(ids.size()));
  CHECK(pointer(tokens.body, "/max_model_len") == "4096");
  CHECK(pointer(tokens.body, "/tokens/0") == std::to_string(ids[0]));
  CHECK(pointer(tokens.body, "/token_strs/0") == "\"What\"");
  const auto text =
      post(server.port(), "/detokenize", R"({"tokens":)" + pointer(tokens.body, "/tokens") + "}");
  CHECK(text.body == R"({"prompt":"What is 12 + 7?"})");

  const auto chat = post(server.port(), "/tokenize", chat_body());
  REQUIRE(chat.status == 200);
  const auto rendered =
      tiny_tokenizer().encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", false);
  CHECK(pointer(chat.body, "/count") == std::to_string(rendered.size()));
  CHECK(post(server.port(), "/detokenize", R"({"tokens":[-1]})").status == 400);
  CHECK(post(server.port(), "/detokenize", R"({"tokens":[1000000]})").status == 400);
  CHECK(post(server.port(), "/tokenize", R"({"prompt":"x","model":"none"})").status == 404);
}

TEST_CASE("a long text becomes tokens on the worker and gives the same", "[server][routes]") {
  TestServer server;
  std::string text;
  for (int i = 0; i < 8000; ++i) text += "word " + std::to_string(i) + " ";
  const auto reply = post(server.port(), "/tokenize", R"({"prompt":")" + text + "\"}");
  REQUIRE(reply.status == 200);
  CHECK(pointer(reply.body, "/count") ==
        std::to_string(tiny_tokenizer().encode(text, true).size()));
}

TEST_CASE("metrics name the engine's own sizes and count what happened", "[server][routes]") {
  TestServer server(TestServerOptions{});
  REQUIRE(
      post(server.port(), "/v1/chat/completions", chat_body(R"("max_tokens":5,"ignore_eos":true)"))
          .status == 200);
  for (const char* path : {"/metrics", "/metrics/"}) {
    const auto reply = get(server.port(), path);
    CHECK(reply.headers.at("content-type") == "text/plain; version=0.0.4; charset=utf-8");
    const std::string& text = reply.body;
    const auto info = text.find("\nvllm:cache_config_info{");
    REQUIRE(info != std::string::npos);
    const std::string line = text.substr(info + 1, text.find('\n', info + 1) - info);
    for (const char* label :
         {"block_size=\"16\"", "num_gpu_blocks=\"257\"", "kv_cache_size_tokens=\"4096\"",
          "max_model_len=\"4096\"", "engine=\"0\"", "model_name=\"tiny\"",
          "enable_prefix_caching=\"True\"", "num_gpu_blocks_override=\"None\""}) {
      INFO(line);
      CHECK(line.find(label) != std::string::npos);
    }
    CHECK(text.find("vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name="
                    "\"tiny\"} 1\n") != std::string::npos);
    CHECK(text.find("vllm:request_generation_tokens_sum{engine=\"0\",model_name=\"tiny\"} 5\n") !=
          std::string::npos);
    CHECK(
        text.find("vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"tiny\"} 1\n") !=
        std::string::npos);
    CHECK(text.find("http_requests_total{handler=\"/v1/chat/"
                    "completions\",method=\"POST\",status=\"2xx\"} 1\n") != std::string::npos);
  }
}

TEST_CASE("while the engine starts the port answers and says what it waits for",
          "[server][routes]") {
  TestServerOptions options;
  options.engine.startup_time = std::chrono::seconds(1);
  options.wait_until_ready = false;
  TestServer server(std::move(options));
  const auto early = post(server.port(), "/v1/chat/completions", chat_body());
  if (early.status == 503) {
    CHECK(early.headers.count("retry-after") == 1);
    CHECK(pointer(early.body, "/error/message").find("starting") != std::string::npos);
    CHECK(get(server.port(), "/health/live").status == 200);
  }
  CHECK(early.status == 503);
  CHECK(eventually([&] { return get(server.port(), "/health").status == 200; }));
  CHECK(post(server.port(), "/v1/chat/completions", chat_body(R"("max_tokens":3)")).status == 200);
}

TEST_CASE("an engine that cannot start ends the server with its own words", "[server][routes]") {
  TestServerOptions options;
  options.engine.dies_at_startup = "no weights here";
  options.wait_until_ready = false;
  TestServer server(std::move(options));
  CHECK_THROWS_WITH(server.wait_for_end(), Catch::Contains("no weights here"));
}

TEST_CASE("an engine that dies ends the server, after an answer to who waited",
          "[server][routes]") {
  TestServerOptions options;
  options.engine.dies_after_steps = 3;
  options.config.keep_after_engine_death = false;
  TestServer server(std::move(options));
  const auto cut = post(server.port(), "/v1/chat/completions", chat_body(R"("ignore_eos":true)"));
  CHECK(cut.status == 503);
  CHECK_THROWS_AS(server.wait_for_end(), EngineDied);
}

TEST_CASE("when the engine dies, health says so and requests are refused", "[server][routes]") {
  TestServerOptions options;
  options.engine.dies_after_steps = 3;
  TestServer server(std::move(options));
  const auto cut = post(server.port(), "/v1/chat/completions", chat_body(R"("ignore_eos":true)"));
  CHECK(cut.status == 503);
  CHECK(eventually([&] { return get(server.port(), "/health").status == 503; }));
  CHECK(get(server.port(), "/health/live").status == 503);
  const auto refused = post(server.port(), "/v1/chat/completions", chat_body());
  CHECK(refused.status == 503);
  CHECK(pointer(refused.body, "/error/message").find("dead") != std::string::npos);
}
