// Where a request ends: what a proxy in front could read differently is refused.

#include <catch2/catch.hpp>

#include "tests/support/http_client.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

namespace {

const std::string kHidden = "GET /version HTTP/1.1\r\nHost: t\r\nX-Request-Id: smuggled\r\n\r\n";

std::string with_coding(const std::string& coding, const std::string& version = "1.1") {
  return "POST /tokenize HTTP/" + version +
         "\r\nHost: t\r\nContent-Type: application/json\r\nConnection: keep-alive\r\n"
         "Transfer-Encoding:" +
         coding + "\r\n\r\n";
}

std::string everything(HttpClient& client) {
  std::string all;
  for (std::string more = client.receive_some(); !more.empty(); more = client.receive_some()) {
    all += more;
  }
  return all;
}

}  // namespace

TEST_CASE("a transfer coding other than chunked hides no request", "[server][framing]") {
  TestServer server;
  for (const char* coding :
       {" xchunked", " chunked, identity", " \"chunked\"", " gzip", "", " gzip, chunked",
        " chunked, chunked", " chunked;q=1", " identity\r\nTransfer-Encoding: chunked"}) {
    INFO(coding);
    HttpClient client(server.port());
    client.send(with_coding(coding) + kHidden);
    const std::string all = everything(client);
    CHECK(all.starts_with("HTTP/1.1 400"));
    CHECK(all.find("Transfer-Encoding") != std::string::npos);
    CHECK(all.find("Connection: close") != std::string::npos);
    CHECK(all.find("smuggled") == std::string::npos);
  }
  HttpClient old(server.port());
  old.send(with_coding(" chunked", "1.0") + "0\r\n\r\n" + kHidden);
  const std::string all = everything(old);
  CHECK(all.starts_with("HTTP/1.1 400"));
  CHECK(all.find("smuggled") == std::string::npos);
}

TEST_CASE("Chunked in any case is chunked", "[server][framing]") {
  TestServer server;
  HttpClient client(server.port());
  client.send(with_coding(" CHUNKED") + "e\r\n{\"prompt\":\"x\"}\r\n0\r\n\r\n");
  CHECK(client.receive()->status == 200);
}

TEST_CASE("empty lines before a request are passed over", "[server][framing]") {
  TestServer server;
  const std::string get = "GET /version HTTP/1.1\r\nHost: t\r\n\r\n";
  HttpClient client(server.port());
  client.send("\r\n" + get);
  CHECK(client.receive()->status == 200);
  client.send("\r");
  client.send("\n\r\n" + get + "\r\n" + get);
  CHECK(client.receive()->status == 200);
  CHECK(client.receive()->status == 200);
  client.send("\n" + get);
  CHECK(client.receive()->status == 400);
}

TEST_CASE("a client of HTTP/1.0 is never told to continue", "[server][framing]") {
  TestServer server;
  HttpClient client(server.port());
  client.send(
      "POST /tokenize HTTP/1.0\r\nHost: t\r\nContent-Type: application/json\r\n"
      "Expect: 100-continue\r\nContent-Length: 14\r\n\r\n");
  client.send("{\"prompt\":\"x\"}");
  CHECK(everything(client).starts_with("HTTP/1.1 200"));
}

TEST_CASE("a reply of no content has no length", "[server][framing]") {
  TestServer server;
  HttpClient client(server.port());
  client.send("OPTIONS /version HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
  const std::string all = everything(client);
  CHECK(all.starts_with("HTTP/1.1 204"));
  CHECK(all.find("Content-Length") == std::string::npos);
}

TEST_CASE("trailers are not headers", "[server][framing]") {
  TestServerOptions options;
  options.config.api_keys = {"secret"};
  TestServer server(std::move(options));
  HttpClient late(server.port());
  const std::string chunks = "e\r\n{\"prompt\":\"x\"}\r\n0\r\n";
  late.send(with_coding(" chunked") + chunks + "Authorization: Bearer secret\r\n\r\n");
  CHECK(late.receive()->status == 401);

  HttpClient client(server.port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
      "Authorization: Bearer secret\r\nTransfer-Encoding: chunked\r\n\r\n" +
      chunks + "X-Request-Id: late\r\n\r\n");
  const auto reply = client.receive();
  CHECK(reply->status == 200);
  CHECK(reply->headers.at("x-request-id") != "late");
}

TEST_CASE("a head that two readers may read as two things is refused", "[server][framing]") {
  TestServer server;
  struct Case {
    std::string head;
    std::string says;
  };
  const std::vector<Case> cases = {
      {"GET /version HTTP/1.1\r\n\r\n", "no Host"},
      {"GET /version HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "more than one Host"},
      {"GET /version HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "more than one Host"},
      {"GET /version HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", "more than one Host"},
      {"GET /version HTTP/1.1\r\nHost: a\r\nX-One: 1\r\n  2\r\n\r\n", "second line"},
      {"GET /version HTTP/1.1\r\nHost: a\r\nX-One: 1\r\n\t2\r\n\r\n", "second line"},
      {"GET /version HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer\r\n secret\r\n\r\n",
       "second line"},
      {"GET /version HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a\r\nAuthorization: Bearer "
       "b\r\n\r\n",
       "more than one Authorization"},
  };
  for (const Case& c : cases) {
    INFO(c.head);
    HttpClient client(server.port());
    client.send(c.head);
    const auto reply = client.receive();
    REQUIRE(reply);
    CHECK(reply->status == 400);
    CHECK(reply->body.find(c.says) != std::string::npos);
    CHECK(client.closed_by_server());
  }
  HttpClient old(server.port());
  old.send("GET /version HTTP/1.0\r\n\r\n");  // Host came with 1.1
  CHECK(old.receive()->status == 200);
  HttpClient spaced(server.port());  // a space in a body folds nothing
  spaced.send(post_request("/tokenize", "{\n \"prompt\":\n\t\"x\"}"));
  CHECK(spaced.receive()->status == 200);
}
