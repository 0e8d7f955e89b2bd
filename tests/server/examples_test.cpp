// Replays openapi/examples against a server: what the contract shows is what is answered. Times,
// made-up ids and prompt lengths are set to the examples' before they are compared.

#include <simdjson.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>

#include "tests/support/http_client.h"
#include "tests/support/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

using Element = simdjson::dom::element;

// Prompt and completion tokens are compared only as far as they add up; other tests count them.
std::string normalized(std::string json) {
  json = std::regex_replace(json, std::regex(R"RX("(created|created_at|completed_at)":\d+)RX"),
                            R"("$1":0)");
  json = std::regex_replace(json, std::regex(R"RX("(id|call_id)":"(chatcmpl-tool-|call_)[^"]*")RX"),
                            R"("$1":"")");
  json = std::regex_replace(json, std::regex(R"RX("quire-[^"]*")RX"), R"("quire-0.1.0-fake")");
  return std::regex_replace(
      json, std::regex(R"RX("(prompt|total|completion|input|output)_tokens":\d+)RX"),
      R"("$1_tokens":0)");
}

std::string normalized(Element element) { return normalized(simdjson::minify(element)); }

std::string normalized_json(const std::string& json) {
  simdjson::dom::parser parser;
  return normalized(Element(parser.parse(json)));
}

void replay(const std::filesystem::path& file) {
  simdjson::dom::parser parser;
  const Element example = parser.load(file.string());
  TestServer server(answering(std::string(example["engine_says"])));
  const auto reply =
      post(server.port(), std::string(example["path"]),
           simdjson::minify(Element(example["request"])), "X-Request-Id: example\r\n");
  CHECK(reply.status == std::int64_t(example["status"]));

  simdjson::dom::array expected;
  if (example["events"].get(expected)) {
    CHECK(normalized_json(reply.body) == normalized(Element(example["response"])));
    return;
  }
  const auto events = events_of(reply.body);
  REQUIRE(events.size() == expected.size());
  std::size_t i = 0;
  for (const Element event : expected) {
    const std::string is = normalized(events[i++]);
    CHECK((event.is_string() ? '"' + is + '"' : is) == normalized(event));
  }
}

}  // namespace

TEST_CASE("the contract's examples are what is answered", "[server][examples]") {
  int num_examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator("openapi/examples")) {
    INFO(entry.path());
    replay(entry.path());
    ++num_examples;
  }
  CHECK(num_examples >= 10);
}
