// What n, long lists and coalesced outputs do to a request's choices and to /metrics.

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "tests/support/http_client.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr const char* kChat = "/v1/chat/completions";

}  // namespace

TEST_CASE("sixty tokens are fifty-nine gaps, however many came at once", "[server][choices]") {
  TestServer server;  // its engine makes tokens faster than they are read
  const std::string body = chat_body(R"("max_tokens":60,"ignore_eos":true,"n":2)");
  REQUIRE(post(server.port(), kChat, body).status == 200);
  const std::string metrics = get(server.port(), "/metrics").body;
  for (const char* line :
       {"vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"tiny\"} 118\n",
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"tiny\"} 2\n"}) {
    INFO(line);
    CHECK(metrics.find(line) != std::string::npos);
  }
}

TEST_CASE("more choices than could ever be taken are one 400 with the numbers",
          "[server][choices]") {
  TestServerOptions options;
  options.engine_config.scheduler.max_num_seqs = 4;
  options.engine_config.scheduler.max_num_queued_reqs = 2;
  TestServer server(std::move(options));
  const auto refused =
      post(server.port(), "/v1/completions", R"({"prompt":["a","b"],"n":4,"max_tokens":2})");
  CHECK(refused.status == 400);
  CHECK(refused.body.find("is 8, but at most 6 requests") != std::string::npos);
  CHECK(refused.body.find("SchedulerConfig::max_num_queued_reqs") != std::string::npos);
  CHECK(server.engine().num_added() == 0);
  CHECK(post(server.port(), "/v1/completions", R"({"prompt":["a","b"],"n":3,"max_tokens":2})")
            .status == 200);
}

TEST_CASE("what every choice would copy is bounded", "[server][choices]") {
  TestServer server;
  const std::string huge(5000, 's');
  std::string many = "[\"";
  for (int i = 0; i < 20; ++i) many += std::string(4000, 'a') + std::to_string(i) + "\",\"";
  many += "end\"]";
  std::string ids = "[0";
  for (int i = 0; i < 1600; ++i) ids += ",1";
  for (const std::string& members : {"\"stop\":\"" + huge + "\"", "\"stop\":" + many,
                                     "\"allowed_token_ids\":" + ids + "]"}) {
    const auto refused = post(server.port(), kChat, chat_body(members));
    CHECK(refused.status == 400);
    CHECK(refused.body.find("\"param\":\"" + members.substr(1, members.find('"', 1) - 1)) !=
          std::string::npos);
  }
  CHECK(post(server.port(), kChat, chat_body("\"stop\":\"" + huge.substr(0, 4000) + "\"")).status ==
        200);
}

TEST_CASE("a stream of several choices that is refused has a status", "[server][choices]") {
  TestServerOptions options;
  options.engine.rejects = [](const AddRequest&) { return true; };
  TestServer server(std::move(options));
  const auto chat = post(server.port(), kChat, chat_body(R"("stream":true,"n":3)"));
  CHECK(chat.status >= 400);
  CHECK(chat.headers.at("content-type") == "application/json");
  const auto text = post(server.port(), "/v1/completions",
                         R"({"prompt":["a","b"],"stream":true,"n":2})");
  CHECK(text.status == chat.status);
  CHECK(text.body.find("data:") == std::string::npos);
}

TEST_CASE("of requests that come at once each is taken whole or not at all", "[server][choices]") {
  TestServerOptions options;
  options.engine_config.scheduler.max_num_seqs = 40;
  options.engine_config.scheduler.max_num_queued_reqs = 40;
  options.engine.step_time = std::chrono::milliseconds(1);
  options.io_threads = 4;
  TestServer server(std::move(options));
  const std::string body = R"({"prompt":"a","n":60,"max_tokens":2,"ignore_eos":true})";
  std::atomic<int> taken{0}, refused{0};
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> clients;
    for (int i = 0; i < 4; ++i) {
      clients.emplace_back([&] {
        const int status = post(server.port(), "/v1/completions", body).status;
        ++(status == 200 ? taken : refused);
      });
    }
    for (auto& client : clients) client.join();
  }
  CHECK(taken + refused == 80);
  CHECK(refused > 0);
  CHECK(server.engine().num_added() == taken * 60);
}
