// The bootstrap server of vLLM's Mooncake connector.

#include "engine/kv_mooncake/bootstrap.h"

#include <catch2/catch.hpp>

namespace quire::test {
namespace {

// As uvicorn answers for vLLM's own server with two ranks.
constexpr const char* kTheirs =
    R"({"0":{"engine_id":"vllm-a","worker_addr":{"0":{"0":"tcp://10.0.0.7:4000"},)"
    R"("1":{"0":"tcp://10.0.0.7:4001"}}},"1":{"engine_id":"vllm-b",)"
    R"("worker_addr":{"0":{"0":"tcp://[fd00::1]:4002"}}}})";

std::string whole_reply(const std::string& body, const char* status = "200 OK") {
  return std::string("HTTP/1.1 ") + status +
         "\r\nserver: uvicorn\r\ncontent-type: application/json\r\ncontent-length: " +
         std::to_string(body.size()) + "\r\nconnection: close\r\n\r\n" + body;
}

}  // namespace

TEST_CASE("the ranks of an engine are found by its name", "[mooncake]") {
  const auto body = http_body(whole_reply(kTheirs));
  REQUIRE(body.has_value());
  const auto first = find_workers(*body, "vllm-a");
  REQUIRE(first.has_value());
  REQUIRE(first->ranks.size() == 2);
  CHECK(first->ranks[1].host == "10.0.0.7");
  CHECK(first->ranks[1].port == 4001);
  const auto second = find_workers(*body, "vllm-b");
  REQUIRE(second.has_value());
  CHECK(second->ranks[0].host == "fd00::1");
  const auto none = find_workers(*body, "vllm-c");
  REQUIRE_FALSE(none.has_value());
  CHECK(none.error().detail.find("vllm-a, vllm-b") != std::string::npos);
}

TEST_CASE("a host that is a number of IPv6 is asked for in brackets", "[mooncake]") {
  for (const std::string host : {"[fd00::1]:8998", "10.0.0.7:8998"}) {
    const std::string question = http_question(*parse_bootstrap_address("http://" + host));
    CHECK(question.find("\r\nHost: " + host + "\r\n") != std::string::npos);
  }
}

TEST_CASE("our own server's answer is read by our own client", "[mooncake]") {
  const MooncakeWorkers workers{"quire \"x\"", {{.path = {}, .host = "127.0.0.1", .port = 77}}};
  const std::string json = bootstrap_json(3, workers);
  CHECK(json ==
        R"({"3":{"engine_id":"quire \"x\"","worker_addr":{"0":{"0":"tcp://127.0.0.1:77"}}}})");
  const auto body = http_body(http_reply("GET /query HTTP/1.1\r\nHost: a\r\n\r\n", json));
  REQUIRE(body.has_value());
  const auto found = find_workers(*body, "quire \"x\"");
  REQUIRE(found.has_value());
  CHECK(found->ranks[0].port == 77);
}

TEST_CASE("other questions are refused", "[mooncake]") {
  CHECK(http_reply("POST /register HTTP/1.1\r\n\r\n", "{}").starts_with("HTTP/1.1 403 "));
  for (const char* head : {"GET / HTTP/1.1\r\n\r\n", "POST /query HTTP/1.1\r\n\r\n", "\r\n\r\n",
                           "GET /query2 HTTP/1.1\r\n\r\n", "\xff\xff\r\n\r\n"})
    CHECK(http_reply(head, "{}").starts_with("HTTP/1.1 404 "));
}

TEST_CASE("replies that are no use are refused with a word", "[mooncake]") {
  CHECK_FALSE(http_body("").has_value());
  CHECK_FALSE(http_body("no HTTP").has_value());
  CHECK_FALSE(http_body(whole_reply("{}", "503 Service Unavailable")).has_value());
  const std::string whole = whole_reply(kTheirs);
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK_FALSE(http_body(whole.substr(0, size)).has_value());
  CHECK_FALSE(http_body(whole_reply(std::string(kMaxBootstrapBytes + 1, ' '))).has_value());
  const auto chunked =
      http_body("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n");
  REQUIRE(chunked.has_value());
  CHECK(*chunked == "{}");
}

TEST_CASE("ranks that cannot be asked are refused with a word", "[mooncake]") {
  for (const char* ranks :
       {R"({})", R"({"1":{"0":"tcp://a:1"}})", R"({"0":{"0":"tcp://a:1","1":"tcp://a:2"}})",
        R"({"0":{"0":"unix:/a"}})", R"({"0":{"0":"tcp://a"}})", R"({"0":{"0":"tcp://a:0"}})",
        R"({"0":{"0":7}})", R"({"x":{"0":"tcp://a:1"}})", R"({"9999":{"0":"tcp://a:1"}})", "[]"}) {
    const auto found =
        find_workers(std::string(R"({"0":{"engine_id":"e","worker_addr":)") + ranks + "}}", "e");
    REQUIRE_FALSE(found.has_value());
    CHECK_FALSE(found.error().detail.empty());
  }
  CHECK_FALSE(find_workers("", "e").has_value());
  CHECK_FALSE(find_workers("[]", "e").has_value());
  CHECK_FALSE(find_workers(R"({"0":{}})", "e").has_value());
}

TEST_CASE("addresses of bootstrap servers", "[mooncake]") {
  const auto good = parse_bootstrap_address("http://10.0.0.7:8998/");
  REQUIRE(good.has_value());
  CHECK(good->host == "10.0.0.7");
  CHECK(good->port == 8998);
  for (const char* bad :
       {"", "10.0.0.7:8998", "https://10.0.0.7:8998", "http://10.0.0.7", "http://10.0.0.7:0",
        "http://unix:/a", "http://tcp://a:1", "http://a:1/path"})
    CHECK_FALSE(parse_bootstrap_address(bad).has_value());
}

}  // namespace quire::test
