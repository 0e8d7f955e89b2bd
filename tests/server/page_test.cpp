// The page for people, and which other pages may use the server.

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "server/http/cors.h"
#include "server/page/files.h"
#include "tests/support/http_client.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

const char* const kBrowser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

std::string preflight(int port, const std::string& origin, std::string_view header) {
  HttpClient client(port);
  client.send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: t\r\nOrigin: " + origin +
              "\r\nAccess-Control-Request-Method: POST\r\n\r\n");
  const auto reply = client.receive();
  REQUIRE(reply.has_value());
  CHECK(reply->status == 204);
  const auto found = reply->headers.find(std::string(header));
  return found == reply->headers.end() ? "" : found->second;
}

}  // namespace

TEST_CASE("the binary has the page's files as they lie in the source", "[server][page]") {
  for (const PageFile& file : page_files()) {
    INFO(file.name);
    std::ifstream in("server/page/" + std::string(file.name), std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    CHECK(!file.text.empty());
    CHECK(file.text == text.str());
  }
}

TEST_CASE("pages may always send what JSON needs", "[server][page]") {
  TestServerOptions options;
  options.config.cors.origins = {"https://a.example"};
  options.config.cors.headers = {"x-foo", "content-type"};
  TestServer server(options);
  CHECK(preflight(server.port(), "https://a.example", "access-control-allow-headers") ==
        "x-foo, content-type, Accept, Accept-Language, Content-Language");
}

TEST_CASE("a browser gets the page without a key, with headers that let nothing else in",
          "[server][page]") {
  TestServerOptions options;
  options.config.api_keys = {"secret"};
  TestServer server(options);
  const auto page = get(server.port(), "/", kBrowser);
  REQUIRE(page.status == 200);
  CHECK(page.headers.at("content-type") == "text/html; charset=utf-8");
  const std::string& policy = page.headers.at("content-security-policy");
  CHECK(policy.starts_with("default-src 'none'; script-src 'self';"));
  CHECK(policy.find("unsafe") == std::string::npos);
  CHECK(page.headers.at("x-content-type-options") == "nosniff");
  CHECK(page.headers.at("vary").find("Accept") != std::string::npos);
  CHECK(get(server.port(), "/").status == 401);  // a program's list of links

  // All that it names is there, and it names nothing elsewhere.
  CHECK(page.body.find("https://") == std::string::npos);
  std::size_t named = 0;
  for (std::size_t at = 0; (at = page.body.find("\"ui/", at)) != std::string::npos; ++at, ++named) {
    const auto end = page.body.find('"', at + 1);
    const auto file = get(server.port(), "/" + page.body.substr(at + 1, end - at - 1));
    CHECK(file.status == 200);
    CHECK(file.headers.at("content-type").find(named == 0 ? "text/css" : "text/javascript") == 0);
  }
  CHECK(named == 2);
  for (const char* path : {"/ui/", "/ui/none.js", "/ui/../main.js", "/ui/index.html/"}) {
    INFO(path);
    CHECK(get(server.port(), path).status == 404);
  }
}

TEST_CASE("HEAD of the page has its length and no body", "[server][page]") {
  TestServer server;
  HttpClient client(server.port());
  client.send("HEAD / HTTP/1.1\r\nHost: t\r\n" + std::string(kBrowser) + "\r\n" +
              get_request("/health"));
  const std::string both = client.receive_some();
  CHECK(both.find("Content-Length: " + std::to_string(page_files().front().text.size())) !=
        std::string::npos);
  CHECK(both.find("doctype") == std::string::npos);
}

TEST_CASE("pages of other origins are told nothing, unless they were named", "[server][cors]") {
  {
    TestServer closed;
    const auto reply = get(closed.port(), "/v1/models", "Origin: https://page.example\r\n");
    CHECK(reply.headers.count("access-control-allow-origin") == 0);
    CHECK(preflight(closed.port(), "https://page.example", "access-control-allow-origin").empty());
  }
  TestServerOptions options;
  options.config.cors.origins = {"https://page.example", "http://localhost:3000"};
  TestServer server(options);
  const auto origin = std::string("access-control-allow-origin");
  CHECK(preflight(server.port(), "http://localhost:3000", origin) == "http://localhost:3000");
  CHECK(preflight(server.port(), "http://localhost:3000", "vary") == "Origin");
  CHECK(preflight(server.port(), "http://localhost:3000", "access-control-allow-headers") ==
        "*, Authorization");
  CHECK(preflight(server.port(), "https://page.example.evil", origin).empty());
  CHECK(preflight(server.port(), "null", origin).empty());
  const auto refused = post(server.port(), "/v1/chat/completions", "{}",
                            "Origin: https://page.example\r\n");
  CHECK(refused.status == 400);  // an error can be read as well
  CHECK(refused.headers.at(origin) == "https://page.example");
}

TEST_CASE("CORS settings that make no sense are refused by their flag", "[server][cors]") {
  CorsConfig config;
  CHECK(validate(config).has_value());
  CHECK(cors_headers({.origins = {"*"}}, "https://x", false).find(": *\r\n") != std::string::npos);
  for (const char* origin : {"page.example", "https://x/path", "https://", "a b", ""}) {
    INFO(origin);
    config.origins = {origin};
    CHECK(validate(config).error().field == "CorsConfig::origins");
  }
  config = {.origins = {"*"}, .credentials = true};
  CHECK(validate(config).error().field == "CorsConfig::credentials");
  config = {.origins = {"https://x"}, .headers = {"X-A\r\nEvil: 1"}};
  CHECK(validate(config).error().field == "CorsConfig::headers");
}
