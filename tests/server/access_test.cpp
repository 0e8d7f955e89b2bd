// Who may ask what, and what strangers are told.

#include <simdjson.h>
#include <catch2/catch.hpp>

#include "base/host_guard.h"
#include "tests/support/http_client.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

TestServerOptions guarded() {
  TestServerOptions options;
  options.config.api_keys = {"secret", "other"};
  return options;
}

std::string message_of(const HttpResponse& reply) {
  simdjson::dom::parser parser;
  return std::string(parser.parse(reply.body).at_pointer("/error/message").get_string().value());
}

}  // namespace

TEST_CASE("with a key set, everything but probes, version and metrics asks for it",
          "[server][access]") {
  TestServer server(guarded());
  for (const char* path : {"/health", "/health/live", "/ping", "/version", "/metrics"}) {
    INFO(path);
    CHECK(get(server.port(), path).status == 200);
  }
  for (const char* path : {"/v1/models", "/v1/models/tiny", "/load", "/"}) {
    INFO(path);
    const auto refused = get(server.port(), path);
    CHECK(refused.status == 401);
    CHECK(refused.body == R"({"error":"Unauthorized"})");
    CHECK(get(server.port(), path, "Authorization: Bearer wrong\r\n").status == 401);
    CHECK(get(server.port(), path, "Authorization: Bearer other\r\n").status == 200);
    CHECK(get(server.port(), path, "X-Api-Key: secret\r\n").status == 200);
    CHECK(get(server.port(), path, "X-Api-Key: \r\n").status == 401);
  }
  for (const char* path :
       {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"}) {
    INFO(path);
    CHECK(post(server.port(), path, "{}").status == 401);
    CHECK(post(server.port(), path, "{}", "X-Api-Key: secret\r\n").status == 400);
  }
}

TEST_CASE("a key of the file has so many requests under way as its line says",
          "[server][access]") {
  TestServerOptions options;
  options.engine.eos.reset();
  options.engine.step_time = std::chrono::milliseconds(2);
  const auto keys = parse_key_file(
      "alice 8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8 concurrency=1\n"
      "bob f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753\n");
  options.config.named_keys = keys.value();
  TestServer server(std::move(options));
  const std::string alice = "Authorization: Bearer alpha\r\n", bob = "X-Api-Key: beta\r\n";
  CHECK(post(server.port(), "/v1/chat/completions", chat_body()).status == 401);

  const std::string body = chat_body(R"("max_tokens":300,"ignore_eos":true)");
  HttpClient first(server.port());
  first.send(post_request("/v1/chat/completions", body, alice));
  REQUIRE(eventually([&] { return server.engine().num_live() == 1; }));
  const auto second = post(server.port(), "/v1/chat/completions", body, alice);
  CHECK(second.status == 429);
  CHECK(second.headers.at("retry-after") == "1");
  CHECK(second.body.find("alice has 1 requests under way") != std::string::npos);
  CHECK(post(server.port(), "/v1/completions", R"({"prompt":"x","max_tokens":2})", bob).status ==
        200);
  CHECK(first.receive()->status == 200);
  CHECK(get(server.port(), "/v1/models", alice).status == 200);
}

TEST_CASE("metrics may have a key of their own", "[server][access]") {
  auto options = guarded();
  options.config.metrics_api_keys = {"scraper"};
  TestServer server(std::move(options));
  CHECK(get(server.port(), "/metrics").status == 401);
  CHECK(get(server.port(), "/metrics", "Authorization: Bearer secret\r\n").status == 401);
  CHECK(get(server.port(), "/metrics", "Authorization: Bearer scraper\r\n").status == 200);
  CHECK(get(server.port(), "/v1/models", "Authorization: Bearer scraper\r\n").status == 401);
}

TEST_CASE("the content type is application/json, in any case, and nothing like it",
          "[server][access]") {
  TestServer server;
  const auto status = [&](const std::string& header) {
    HttpClient client(server.port());
    const std::string body = R"({"prompt":"x"})";
    client.send("POST /tokenize HTTP/1.1\r\nHost: t\r\n" + header +
                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return client.receive()->status;
  };
  CHECK(status("Content-Type: application/json\r\n") == 200);
  CHECK(status("Content-Type: Application/JSON\r\n") == 200);
  CHECK(status("content-type: application/json ; charset=utf-8\r\n") == 200);
  CHECK(status("Content-Type: application/jsonx\r\n") == 400);
  CHECK(status("Content-Type: application/json-patch+json\r\n") == 400);
  CHECK(status("Content-Type: text/plain; application/json\r\n") == 400);
  CHECK(status("") == 400);
}

TEST_CASE("a path that is not there says what was probably meant, and is counted",
          "[server][access]") {
  TestServer server;
  const auto missed = post(server.port(), "/chat/completions", "{}");
  CHECK(missed.status == 404);
  CHECK(message_of(missed) ==
        "Not Found: POST /chat/completions. Did you mean /v1/chat/completions?");
  CHECK(message_of(get(server.port(), "/v1/models/")) ==
        "Not Found: GET /v1/models/. Did you mean /v1/models?");
  CHECK(message_of(get(server.port(), "/wp-admin")) ==
        "Not Found: GET /wp-admin. GET / lists what there is.");
  CHECK(get(server.port(), "/" + std::string(1500, 'a')).body.size() < 500);
  const auto wrong = get(server.port(), "/v1/chat/completions");
  CHECK(wrong.status == 405);
  CHECK(wrong.headers.at("allow") == "POST, OPTIONS");
  CHECK(message_of(wrong) == "Method Not Allowed: /v1/chat/completions takes POST, OPTIONS");

  HttpClient odd(server.port());
  odd.send("BREW /coffee HTTP/1.1\r\nHost: t\r\n\r\n");
  CHECK(odd.receive()->status == 404);
  const std::string metrics = get(server.port(), "/metrics").body;
  const auto counted = [&](const std::string& labels) {
    return metrics.find("http_requests_total{" + labels + "}") != std::string::npos;
  };
  CHECK(counted(R"(handler="none",method="POST",status="4xx")"));
  CHECK(counted(R"(handler="none",method="GET",status="4xx")"));
  CHECK(counted(R"(handler="none",method="other",status="4xx")"));
  CHECK(metrics.find("coffee") == std::string::npos);
}

TEST_CASE("the root says what there is, to programs and to people", "[server][access]") {
  TestServer server;
  const auto json = get(server.port(), "/");
  CHECK(json.status == 200);
  CHECK(json.headers.at("content-type") == "application/json");
  CHECK(json.body.find("\"/v1/chat/completions\"") != std::string::npos);
  CHECK(json.body.find(std::string(quire_version())) != std::string::npos);
  const auto html = get(server.port(), "/", "Accept: text/html,application/xhtml+xml\r\n");
  CHECK(html.headers.at("content-type") == "text/html; charset=utf-8");
  CHECK(html.body.starts_with("<!doctype html>"));
}

TEST_CASE("OPTIONS says the methods, HEAD has no body", "[server][access]") {
  TestServer server;
  HttpClient client(server.port());
  client.send("OPTIONS /v1/models HTTP/1.1\r\nHost: t\r\nOrigin: http://page\r\n\r\n");
  const auto options = client.receive();
  CHECK(options->status == 204);
  CHECK(options->headers.at("allow") == "GET, HEAD, OPTIONS");
  client.send("HEAD /version HTTP/1.1\r\nHost: t\r\n\r\n" + get_request("/health"));
  std::string rest = client.receive_some();
  CHECK(rest.find("Content-Length: ") != std::string::npos);
  CHECK(rest.find("version\"") == std::string::npos);
}

TEST_CASE("a server on a loopback address without a key answers to its own names only",
          "[server][access]") {
  TestServerOptions options;
  options.config.host = "127.0.0.1";
  options.config.allowed_hosts = {"models.example"};
  TestServer server(std::move(options));
  const auto status = [&](const std::string& host) {
    HttpClient client(server.port());
    client.send("GET /v1/models HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
    return client.receive().value().status;
  };
  for (const char* own : {"127.0.0.1", "127.0.0.1:8000", "[::1]:8000", "localhost:8000", "LocalHost",
                          "quire.localhost", "192.168.1.5", "gpu-box:8000", "models.example:8000"}) {
    INFO(own);
    CHECK(status(own) == 200);
  }
  for (const char* other : {"rebound.example", "rebound.example:8000", "127.0.0.1.example",
                            "localhost.example"}) {
    INFO(other);
    CHECK(status(other) == 403);
  }
}

TEST_CASE("what needs no body is not done for a page of another origin", "[server][access]") {
  TestServerOptions options;
  options.config.cors.origins = {"https://chat.example"};
  TestServer server(std::move(options));
  const auto status = [&](const std::string& path, const std::string& origin) {
    HttpClient client(server.port());
    client.send("POST " + path + " HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nConnection: close\r\n" +
                origin + "Content-Length: 0\r\n\r\n");
    return client.receive().value().status;
  };
  for (const char* ours :
       {"", "Origin: http://127.0.0.1:8000\r\n", "Origin: https://chat.example\r\n"}) {
    INFO(ours);
    CHECK(status("/reset_prefix_cache", ours) == 200);
  }
  for (const char* other : {"Origin: https://evil.example\r\n", "Origin: null\r\n",
                            "Origin: http://127.0.0.1:9000\r\n"}) {
    INFO(other);
    CHECK(status("/reset_prefix_cache", other) == 403);
    CHECK(status("/ping", other) == 200);
  }
}

TEST_CASE("the names a server answers to are guarded only where nothing else does",
          "[server][access]") {
  CHECK_FALSE(HostGuard("127.0.0.1", false, {}).allows("rebound.example"));
  CHECK_FALSE(HostGuard("localhost", false, {}).allows("rebound.example"));
  CHECK_FALSE(HostGuard("::1", false, {}).allows("rebound.example"));
  CHECK(HostGuard("127.0.0.1", true, {}).allows("rebound.example"));
  CHECK(HostGuard("127.0.0.1", false, {"*"}).allows("rebound.example"));
  CHECK(HostGuard("0.0.0.0", false, {}).allows("quire.default.svc.cluster.local"));
}
