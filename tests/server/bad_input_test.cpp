#include <catch2/catch.hpp>
#include <random>

#include "tests/support/http_client.h"
#include "tests/support/mutate.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

namespace {

struct Case {
  std::string name;
  std::string bytes;
  int status;
  std::string says;
};

std::string chat(const std::string& body) { return post_request("/v1/chat/completions", body); }

TestServerOptions strict() {
  TestServerOptions options;
  options.config.limits.header_bytes = 8 * 1024;
  options.config.limits.body_bytes = 64 * 1024;
  options.config.limits.header_timeout = 300ms;
  options.config.limits.body_timeout = 300ms;
  return options;
}

const std::string kHuge(100'000, 'x');

}  // namespace

TEST_CASE("every bad input gets a clear error and harms nobody", "[server][bad_input]") {
  const std::vector<Case> cases = {
      {"no JSON", chat("{\"messages\":"), 400, "not valid JSON"},
      {"not an object", chat("[1]"), 400, "must be a JSON object"},
      {"empty body", chat(""), 400, "empty"},
      {"deep nesting", chat(std::string(60'000, '[')), 400, "not valid JSON"},
      {"invalid UTF-8", chat("{\"messages\":[{\"role\":\"user\",\"content\":\"\xFF\"}]}"), 400,
       "not valid JSON"},
      {"wrong type", chat(R"({"messages":[{"role":"user","content":"x"}],"temperature":"hot"})"),
       400, "temperature: expected a number, got a string"},
      {"empty messages", chat(R"({"messages":[]})"), 400, "at least one message"},
      {"a member twice", chat(R"({"messages":[{"role":"user","content":"a"}],"messages":[]})"), 400,
       "messages: is given twice"},
      {"unknown role", chat(R"({"messages":[{"role":"robot","content":"x"}]})"), 400,
       "is not a role"},
      {"unknown model", chat(R"({"model":"x","messages":[{"role":"user","content":"x"}]})"), 404,
       "The model `x` does not exist."},
      {"negative max_tokens", chat(chat_body(R"("max_tokens":-3)")), 400,
       "max_tokens must be at least 1"},
      {"huge max_tokens", chat(chat_body(R"("max_tokens":9000000000000000000)")), 400, "4096"},
      {"max_tokens beyond integers", chat(chat_body(R"("max_tokens":99999999999999999999)")), 400,
       ""},
      {"prompt too long", chat(chat_body("", std::string(60'000, 'a'))), 400,
       "maximum context length is 4096 tokens"},
      {"token out of range", chat(chat_body(R"("logit_bias":{"1600":1})")), 400, "logit_bias"},
      {"wrong content type",
       "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\nContent-Length: "
       "2\r\n\r\n{}",
       400, "Only 'application/json'"},
      {"compressed body", post_request("/v1/completions", "{}", "Content-Encoding: gzip\r\n"), 415,
       "Content-Encoding"},
      {"body over the limit", chat("{\"messages\":\"" + kHuge + "\"}"), 413,
       "larger than 65536 bytes"},
      {"declared body over the limit",
       "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n", 413,
       "larger than"},
      {"header over the limit", get_request("/version", "X-Big: " + kHuge + "\r\n"), 431,
       "larger than 8192 bytes"},
      {"endless header", "GET /version HTTP/1.1\r\nX-Big: " + kHuge, 431, "larger than 8192 bytes"},
      {"long target", get_request("/" + std::string(3000, 'a')), 414, "too long"},
      {"not HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xFC\x03\x03\r\n\r\n", 400,
       "Not a valid HTTP request"},
      {"bad version", "GET / HTTP/9.9\r\n\r\n", 400, "Not a valid HTTP request"},
      {"header injection", "GET /version HTTP/1.1\r\nBad Name: x\r\n\r\n", 400,
       "Not a valid HTTP request"},
      {"two lengths", "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
       400, "Not a valid"},
      {"length and chunks",
       "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nContent-Length: "
       "3\r\n\r\n0\r\n\r\n",
       400, "Not a valid"},
      {"negative length", "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: -1\r\n\r\n", 400,
       "Not a valid"},
      {"bad chunk size", "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400,
       "Not a valid"},
      {"slow header", "GET /version HTTP/1.1\r\nX-Slow: ", 408, "did not arrive in time"},
      {"slow body", "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{\"pro", 408,
       "did not arrive in time"},
  };
  TestServer server(strict());
  HttpClient bystander(server.port());
  for (const Case& c : cases) {
    INFO(c.name);
    HttpClient client(server.port());
    client.send(c.bytes);
    const auto reply = client.receive();
    REQUIRE(reply.has_value());
    CHECK(reply->status == c.status);
    INFO(reply->body);
    CHECK(reply->body.find(c.says) != std::string::npos);
    CHECK(reply->body.find("\"error\":{\"message\":") != std::string::npos);
    CHECK(reply->body.size() < 2000);
    if (c.status == 408) continue;  // the bystander's own idle time has passed
    HttpClient other(server.port());
    other.send(get_request("/health"));
    CHECK(other.receive()->status == 200);
  }
  CHECK(server.engine().num_added() == 0);
  CHECK(post(server.port(), "/v1/chat/completions", chat_body(R"("max_tokens":2)")).status == 200);
}

TEST_CASE("a template that refuses or a message it cannot take is the client's error",
          "[server][bad_input]") {
  TestServerOptions options;
  options.defaults.trust_request_chat_template = true;
  TestServer server(std::move(options));
  const auto raised =
      post(server.port(), "/v1/chat/completions",
           chat_body(R"("chat_template":"{{ raise_exception('only even messages') }}")"));
  CHECK(raised.status == 400);
  CHECK(raised.body.find("only even messages") != std::string::npos);
  const auto broken =
      post(server.port(), "/v1/chat/completions", chat_body(R"("chat_template":"{% if %}")"));
  CHECK(broken.status == 400);
  const auto endless = post(
      server.port(), "/v1/chat/completions",
      chat_body(
          R"("chat_template":"{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}")"));
  CHECK(endless.status == 400);
}

TEST_CASE("random bytes and mutated requests never break the server", "[server][bad_input]") {
  TestServer server(strict());
  std::mt19937 random(11);
  const std::string good = chat(chat_body(R"("max_tokens":2,"stop":["a"],"logit_bias":{"3":1})"));
  for (int round = 0; round < 150; ++round) {
    std::string bytes = good;
    for (unsigned edit = 0; edit < 1 + random() % 8; ++edit) {
      erase_or_overwrite(bytes, 3, 20, random);
      if (bytes.empty()) bytes = "x";
    }
    HttpClient client(server.port());
    client.send(bytes);
    client.receive_some(5ms);
  }
  CHECK(get(server.port(), "/health").status == 200);
  CHECK(eventually([&] { return server.engine().num_live() == 0; }));
  CHECK(eventually([&] {
    return get(server.port(), "/metrics").body.find("quire:http_connections 1\n") !=
           std::string::npos;
  }));
}
