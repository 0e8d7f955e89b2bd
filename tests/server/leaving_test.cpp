// Clients that go away, and work that must not outlive them.

#include <catch2/catch.hpp>
#include <memory>

#include "tests/support/http_client.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

namespace {

std::string endless(const std::string& more) {
  return post_request("/v1/chat/completions",
                      chat_body(R"("max_tokens":4000,"ignore_eos":true)" + more));
}

TestServerOptions slow_engine() {
  TestServerOptions options;
  options.engine.eos.reset();
  options.engine.step_time = 2ms;
  return options;
}

}  // namespace

TEST_CASE("a client that left is noticed however much it sent ahead", "[server][leaving]") {
  TestServer server(slow_engine());
  for (const char* stream : {R"(,"stream":true)", ""}) {
    INFO(stream);
    auto client = std::make_unique<HttpClient>(server.port());
    client->send(endless(stream) + std::string(70 * 1024, 'x'));
    REQUIRE(eventually([&] { return server.engine().num_live() == 1; }));
    std::this_thread::sleep_for(50ms);
    client.reset();
    const auto left = std::chrono::steady_clock::now();
    CHECK(eventually([&] { return server.engine().num_live() == 0; }));
    CHECK(std::chrono::steady_clock::now() - left < 4s);  // the answer would take eight seconds
  }
}

TEST_CASE("a final message that is nowhere in the chat is missed in linear time",
          "[server][leaving]") {
  TestServerOptions options;
  options.config.limits.body_timeout = 60s;
  TestServer server(std::move(options));
  const std::string many(2'000'000, 'a');
  const std::string body = R"({"messages":[{"role":"user","content":")" + many + many +
                           R"("},{"role":"assistant","content":")" + many +
                           R"(b"}],"add_generation_prompt":false,"continue_final_message":true})";
  const auto begin = std::chrono::steady_clock::now();
  const auto reply = post(server.port(), "/tokenize", body);
  CHECK((reply.status == 200 || reply.status == 400));
  CHECK(std::chrono::steady_clock::now() - begin < 20s);  // it took minutes
}
