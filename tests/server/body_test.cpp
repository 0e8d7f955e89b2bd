// What is decided before a body is read, and how much of bodies is held.

#include <catch2/catch.hpp>
#include <memory>

#include "tests/support/http_client.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

namespace {

std::string announced(const std::string& path, const std::string& more = {}) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n" +
         more + "\r\n";
}

}  // namespace

TEST_CASE("a refusal does not wait for the body", "[server][body]") {
  TestServerOptions options;
  options.config.api_keys = {"secret"};
  TestServer server(std::move(options));
  const std::string key = "Authorization: Bearer secret\r\n";
  struct Case {
    std::string head;
    int status;
  };
  const std::vector<Case> cases = {
      {announced("/v1/completions"), 401},
      {announced("/tokenize"), 401},
      {announced("/nothing"), 404},
      {announced("/version"), 405},
      {announced("/v1/completions", key + "Content-Encoding: gzip\r\n"), 415},
      {announced("/v1/completions", "Expect: 100-continue\r\n"), 401},
      {"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: text/json\r\n" + key +
           "Content-Length: 1000000\r\n\r\n",
       400},
  };
  for (const Case& c : cases) {
    INFO(c.head);
    HttpClient client(server.port());
    client.send(c.head);  // and not a byte more
    const auto reply = client.receive();
    REQUIRE(reply);
    CHECK(reply->status == c.status);
    CHECK(reply->headers.at("connection") == "close");
    CHECK(client.closed_by_server());
  }
}

TEST_CASE("a refusal of a request without body keeps the connection", "[server][body]") {
  TestServer server;
  HttpClient client(server.port());
  client.send(get_request("/nothing"));
  CHECK(client.receive()->status == 404);
  client.send(get_request("/version"));
  CHECK(client.receive()->status == 200);
}

TEST_CASE("the bodies of all requests together are bounded", "[server][body]") {
  TestServerOptions options;
  options.config.limits.body_bytes = 64 * 1024;
  options.config.limits.body_bytes_in_flight = 100 * 1024;
  TestServer server(std::move(options));
  auto first = std::make_unique<HttpClient>(server.port());
  const std::string half = post_request("/tokenize", std::string(60 * 1024, ' '));
  first->send(half.substr(0, half.size() - 1));
  std::this_thread::sleep_for(100ms);

  const std::string body = R"({"prompt":")" + std::string(55 * 1024, 'a') + "\"}";
  const auto refused = post(server.port(), "/tokenize", body);
  CHECK(refused.status == 503);
  CHECK(refused.headers.at("retry-after") == "1");
  CHECK(refused.body.find("HttpLimits::body_bytes_in_flight") != std::string::npos);
  CHECK(post(server.port(), "/tokenize", R"({"prompt":"small"})").status == 200);

  first.reset();
  CHECK(eventually([&] { return post(server.port(), "/tokenize", body).status == 200; }));
}

TEST_CASE("a request that runs holds its body's bytes no more", "[server][body]") {
  TestServerOptions options;
  options.config.limits.body_bytes = 64 * 1024;
  options.config.limits.body_bytes_in_flight = 64 * 1024;
  options.engine.eos.reset();
  options.engine.step_time = 5ms;
  TestServer server(std::move(options));
  const std::string padded =
      chat_body(R"("max_tokens":100,"user":")" + std::string(40 * 1024, 'u') + "\"");
  HttpClient one(server.port()), two(server.port());
  one.send(post_request("/v1/chat/completions", padded));
  REQUIRE(eventually([&] { return server.engine().num_added() == 1; }));
  two.send(post_request("/v1/chat/completions", padded));
  REQUIRE(eventually([&] { return server.engine().num_live() == 2; }));
  CHECK(one.receive()->status == 200);
  CHECK(two.receive()->status == 200);
}
