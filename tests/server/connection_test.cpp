#include <catch2/catch.hpp>

#include "tests/support/http_client.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

TEST_CASE("a connection carries request after request", "[server][connection]") {
  TestServer server;
  HttpClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    client.send(get_request("/version"));
    CHECK(client.receive()->status == 200);
    client.send(post_request("/v1/chat/completions", chat_body(R"("max_tokens":2)")));
    CHECK(client.receive()->status == 200);
  }
  client.send(get_request("/version", "Connection: close\r\n"));
  CHECK(client.receive()->headers.at("connection") == "close");
  CHECK(client.closed_by_server());
}

TEST_CASE("requests sent ahead are answered in order", "[server][connection]") {
  TestServer server;
  HttpClient client(server.port());
  client.send(post_request("/v1/chat/completions", chat_body(R"("max_tokens":4,"stream":true)")) +
              get_request("/version") + post_request("/tokenize", R"({"prompt":"x"})") +
              get_request("/nothing"));
  CHECK(client.receive()->headers.at("content-type").starts_with("text/event-stream"));
  CHECK(client.receive()->body.find("version") != std::string::npos);
  CHECK(client.receive()->body.find("tokens") != std::string::npos);
  CHECK(client.receive()->status == 404);
}

TEST_CASE("a request may come byte by byte or in chunks", "[server][connection]") {
  TestServer server;
  HttpClient slow(server.port());
  for (const char byte : post_request("/tokenize", R"({"prompt":"x"})")) slow.send({&byte, 1});
  CHECK(slow.receive()->status == 200);

  HttpClient chunked(server.port());
  chunked.send(
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n5\r\n{\"pro\r\n9\r\nmpt\":\"x\"}\r\n0\r\n\r\n");
  CHECK(chunked.receive()->status == 200);
  chunked.send(get_request("/version"));
  CHECK(chunked.receive()->status == 200);
}

TEST_CASE("a client that asks first is told to go on", "[server][connection]") {
  TestServer server;
  HttpClient client(server.port());
  const std::string body = R"({"prompt":"x"})";
  client.send("POST /tokenize HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Type: application/json\r\n"
              "Content-Length: " +
              std::to_string(body.size()) + "\r\n\r\n");
  CHECK(client.receive()->status == 100);
  client.send(body);
  CHECK(client.receive()->status == 200);
}

TEST_CASE("HTTP/1.0 gets its stream unchunked, ended by the close", "[server][connection]") {
  TestServer server(answering("Hi there"));
  HttpClient client(server.port());
  const std::string body = chat_body(R"("stream":true)");
  client.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  std::string all;
  for (std::string more = client.receive_some(); !more.empty(); more = client.receive_some())
    all += more;
  CHECK(all.find("Transfer-Encoding") == std::string::npos);
  CHECK(all.ends_with("data: [DONE]\n\n"));
}

TEST_CASE("more connections than allowed wait for a place", "[server][connection]") {
  TestServerOptions options;
  options.config.limits.max_connections = 2;
  options.config.limits.probe_connections = 0;
  TestServer server(std::move(options));
  auto first = std::make_unique<HttpClient>(server.port());
  HttpClient second(server.port());
  for (HttpClient* client : {first.get(), &second}) {
    client->send(get_request("/version"));
    REQUIRE(client->receive()->status == 200);
  }
  HttpClient third(server.port());
  third.send(get_request("/version"));
  CHECK(third.receive_some(150ms).empty());
  first.reset();
  CHECK(third.receive()->status == 200);
}

TEST_CASE("an idle connection is closed after a while, without a word", "[server][connection]") {
  TestServerOptions options;
  options.config.limits.keep_alive_timeout = 100ms;
  TestServer server(std::move(options));
  HttpClient client(server.port());
  client.send(get_request("/version"));
  REQUIRE(client.receive()->status == 200);
  CHECK(client.closed_by_server());
  CHECK(client.receive_some(0ms).empty());
}

TEST_CASE("a full server answers probes, tells others so, and lets go of who says nothing",
          "[server][connection]") {
  TestServerOptions options;
  options.config.limits.max_connections = 1;
  options.config.limits.header_timeout = 1500ms;
  TestServer server(std::move(options));
  HttpClient silent(server.port());
  HttpClient other(server.port());
  CHECK(eventually([&] {  // the silent one has been accepted first
    const auto reply = get(server.port(), "/v1/models");
    return reply.status == 503 &&
           reply.body.find("HttpLimits::max_connections") != std::string::npos;
  }));
  CHECK(get(server.port(), "/health").status == 200);
  CHECK(get(server.port(), "/metrics").status == 200);
  CHECK(silent.closed_by_server());
  CHECK(other.closed_by_server());
  CHECK(eventually([&] { return get(server.port(), "/v1/models").status == 200; }));
}
