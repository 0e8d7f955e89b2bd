// What orchestrators ask: is it up, would it take a request, is it worth keeping.

#include <catch2/catch.hpp>

#include "tests/support/http_client.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

TEST_CASE("readiness says why not while the engine starts", "[server][health]") {
  TestServerOptions options;
  options.engine.silent_at_startup = true;
  options.wait_until_ready = false;
  TestServer server(std::move(options));
  for (const char* path : {"/health/ready", "/ready", "/readyz"}) {
    INFO(path);
    const auto reply = get(server.port(), path);
    CHECK(reply.status == 503);
    CHECK(reply.body.find("\"reason\":\"starting: ") != std::string::npos);
  }
  CHECK(get(server.port(), "/health").status == 503);
  CHECK(get(server.port(), "/health/live").status == 200);
}

TEST_CASE("an engine that has work and says nothing is not alive", "[server][health]") {
  TestServerOptions options;
  options.engine.eos.reset();
  options.config.stall_timeout = 100ms;
  TestServer server(std::move(options));
  std::this_thread::sleep_for(150ms);
  CHECK(get(server.port(), "/health/live").status == 200);  // silent, but it has nothing to do

  server.engine().hold();
  HttpClient client(server.port());
  client.send(post_request("/v1/chat/completions", chat_body(R"("max_tokens":3)")));
  CHECK(eventually([&] { return get(server.port(), "/health/live").status == 503; }));
  const auto stalled = get(server.port(), "/health/live");
  CHECK(stalled.body.find("\"status\":\"stalled\"") != std::string::npos);
  CHECK(stalled.body.find("ServerConfig::stall_timeout") != std::string::npos);
  server.engine().release();
  CHECK(client.receive()->status == 200);
  CHECK(get(server.port(), "/health/live").status == 200);
}

TEST_CASE("readiness is lost while the queue is full", "[server][health]") {
  TestServerOptions options;
  options.engine.eos.reset();
  options.engine_config.scheduler.max_num_seqs = 1;
  options.engine_config.scheduler.max_num_queued_reqs = 1;
  TestServer server(std::move(options));
  CHECK(get(server.port(), "/health/ready").body == R"({"status":"ready"})");
  server.engine().hold();
  HttpClient client(server.port());
  client.send(post_request("/v1/chat/completions", chat_body(R"("max_tokens":3,"n":2)")));
  CHECK(eventually([&] { return get(server.port(), "/health/ready").status == 503; }));
  CHECK(get(server.port(), "/health/ready").body.find("SchedulerConfig::max_num_queued_reqs") !=
        std::string::npos);
  CHECK(get(server.port(), "/health").status == 200);
  server.engine().release();
  CHECK(client.receive()->status == 200);
  CHECK(eventually([&] { return get(server.port(), "/health/ready").status == 200; }));
}
