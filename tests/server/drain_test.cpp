#include <catch2/catch.hpp>

#include "tests/support/http_client.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

namespace {

constexpr const char* kPath = "/v1/chat/completions";

TestServerOptions slow_engine(std::chrono::milliseconds shutdown_timeout) {
  TestServerOptions options;
  options.engine.eos.reset();
  options.engine.step_time = 2ms;
  options.config.shutdown_timeout = shutdown_timeout;
  return options;
}

bool connects(int port) {
  try {
    HttpClient client(port);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

TEST_CASE("asked to stop, the server finishes what it has begun", "[server][drain]") {
  TestServer server(slow_engine(60s));
  HttpClient streaming(server.port());
  streaming.send(post_request(kPath, chat_body(R"("stream":true,"max_tokens":60)")));
  REQUIRE_FALSE(streaming.receive_some().empty());
  HttpClient idle(server.port());
  idle.send(get_request("/version"));
  REQUIRE(idle.receive()->status == 200);

  server.stop();
  CHECK(idle.closed_by_server());
  CHECK(eventually([&] { return !connects(server.port()); }));
  std::string all;
  for (std::string more = streaming.receive_some(); !more.empty();
       more = streaming.receive_some()) {
    all += more;
  }
  CHECK(all.find("\"finish_reason\":\"length\"") != std::string::npos);
  CHECK(all.find("[DONE]") != std::string::npos);
  server.wait_for_end();
}

TEST_CASE("what does not finish in time is told so and dropped", "[server][drain]") {
  TestServer server(slow_engine(50ms));
  HttpClient streaming(server.port());
  streaming.send(post_request(kPath, chat_body(R"("stream":true,"max_tokens":4000)")));
  REQUIRE_FALSE(streaming.receive_some().empty());
  HttpClient waiting(server.port());
  waiting.send(post_request(kPath, chat_body(R"("max_tokens":4000)")));
  REQUIRE(eventually([&] { return server.engine().num_live() == 2; }));

  server.stop();
  CHECK(waiting.receive()->status == 503);
  std::string all;
  for (std::string more = streaming.receive_some(); !more.empty();
       more = streaming.receive_some()) {
    all += more;
  }
  CHECK(all.find("shutting down") != std::string::npos);
  CHECK(all.find("[DONE]") != std::string::npos);
  server.wait_for_end();
}

TEST_CASE("asked twice, it stops at once", "[server][drain]") {
  TestServer server(slow_engine(3600s));
  HttpClient streaming(server.port());
  streaming.send(post_request(kPath, chat_body(R"("stream":true,"max_tokens":4000)")));
  REQUIRE_FALSE(streaming.receive_some().empty());
  server.stop();
  server.stop();
  server.wait_for_end();
  CHECK_FALSE(connects(server.port()));
}

TEST_CASE("before it refuses anything it says for a while that it will", "[server][drain]") {
  auto options = slow_engine(60s);
  options.config.drain_delay = 3600s;
  TestServer server(std::move(options));
  CHECK(get(server.port(), "/health/ready").status == 200);
  server.stop();
  CHECK(eventually([&] { return get(server.port(), "/health").status == 503; }));
  const auto ready = get(server.port(), "/readyz");
  CHECK(ready.status == 503);
  CHECK(ready.body.find("asked to stop") != std::string::npos);
  CHECK(get(server.port(), "/health/live").status == 200);
  CHECK(post(server.port(), kPath, chat_body(R"("max_tokens":2)")).status == 200);
  server.stop();  // a second time: at once
  server.wait_for_end();
}

TEST_CASE("it can be stopped while the engine starts", "[server][drain]") {
  TestServerOptions options;
  options.engine.silent_at_startup = true;
  options.wait_until_ready = false;
  TestServer server(std::move(options));
  server.stop();
  server.wait_for_end();
  CHECK_FALSE(connects(server.port()));
}
