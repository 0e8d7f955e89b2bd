#include "base/log.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>

using namespace quire;

namespace {

std::string line(log::Format format, log::Fields fields) {
  return log::format_line(format, "T", log::Level::info, "engine.ready", fields);
}

}  // namespace

TEST_CASE("a log line is an event and its fields, as text or as JSON", "[base][log]") {
  CHECK(line(log::Format::text, {{"num_blocks", 12}, {"ok", true}, {"name", "tiny"}}) ==
        "T info  engine.ready num_blocks=12 ok=true name=tiny");
  CHECK(
      line(log::Format::json, {{"num_blocks", 12u}, {"share", 0.5}, {"name", "tiny"}}) ==
      R"({"time":"T","level":"info","event":"engine.ready","num_blocks":12,"share":0.5,"name":"tiny"})");
}

TEST_CASE("what a client sends cannot forge a log line", "[base][log]") {
  const std::string_view hostile = "a b\n2026 error forged\x01 x=\"1\"";
  CHECK(line(log::Format::text, {{"path", hostile}}) ==
        R"(T info  engine.ready path="a b\n2026 error forged\u0001 x=\"1\"")");
  CHECK(
      line(log::Format::json, {{"path", hostile}}) ==
      R"({"time":"T","level":"info","event":"engine.ready","path":"a b\n2026 error forged\u0001 x=\"1\""})");
}

TEST_CASE("bytes that are no text, and text that turns a terminal around, are spelled out",
          "[base][log]") {
  CHECK(line(log::Format::text, {{"path", "/a\xff\x9b" "31m"}}) ==
        "T info  engine.ready path=\"/a\xEF\xBF\xBD\xEF\xBF\xBD" "31m\"");
  CHECK(line(log::Format::json, {{"path", "\xc2\x9b\xe2\x80\xae\xc3\xa9"}})
            .find("\"path\":\"\\u009b\\u202e\xc3\xa9\"") != std::string::npos);
}

TEST_CASE("numbers keep their range and JSON stays JSON", "[base][log]") {
  const auto big = std::numeric_limits<std::uint64_t>::max();
  const auto inf = std::numeric_limits<double>::infinity();
  CHECK(line(log::Format::json, {{"big", big}, {"inf", inf}, {"neg", -3}})
            .find(R"("big":18446744073709551615,"inf":null,"neg":-3})") != std::string::npos);
}

TEST_CASE("levels and formats are named as in the flags", "[base][log]") {
  CHECK(log::parse_level("warn") == log::Level::warn);
  CHECK_FALSE(log::parse_level("loud"));
  CHECK(log::parse_format("json") == log::Format::json);
  CHECK_FALSE(log::parse_format("xml"));
}
