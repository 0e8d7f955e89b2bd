#include "engine/size_text.h"

#include <catch2/catch.hpp>

#include "engine/config.h"

namespace quire {

TEST_CASE("Counts: lower case is decimal, upper case binary") {
  const std::pair<const char*, std::int64_t> cases[] = {
      {"8192", 8192},    {"1k", 1000},    {"1K", 1024},          {"25.6k", 25'600},
      {"2m", 2'000'000}, {"2M", 2 << 20}, {"1g", 1'000'000'000}, {"1G", 1 << 30},
      {"1T", 1ll << 40}, {"0", 0},        {"0.5k", 500}};
  for (const auto& [text, value] : cases) {
    CAPTURE(text);
    CHECK(parse_count(text).value() == value);
  }
}

TEST_CASE("Sizes take byte units") {
  const std::pair<const char*, std::int64_t> cases[] = {
      {"80GiB", 80ll << 30}, {"80GB", 80'000'000'000}, {"512MiB", 512 << 20}, {"1.5GiB", 3ll << 29},
      {"80G", 80ll << 30},   {"80g", 80'000'000'000},  {"100", 100},          {"100B", 100}};
  for (const auto& [text, value] : cases) {
    CAPTURE(text);
    CHECK(parse_bytes(text).value() == value);
  }
}

TEST_CASE("A device's memory needs a unit") {
  CHECK(parse_bytes_with_unit("80GiB").value() == 80ll << 30);
  CHECK(parse_bytes_with_unit("100B").value() == 100);
  for (const char* text : {"80", "1.5", "85899345920", ""}) {
    CAPTURE(text);
    CHECK(parse_bytes_with_unit(text).has_error());
  }
  CHECK(parse_bytes_with_unit("80").error().detail.find("80GiB") != std::string::npos);
}

TEST_CASE("What is no number is refused and quoted") {
  for (const char* text : {"", "k", "-5", "1.5K", "1.5", "12 k", "1kk", "1x", "1e3", "9999999T",
                           "0x10", "1..5k", "80gB", "80kiB", "GiB", "nan", "1KiB"}) {
    CAPTURE(text);
    REQUIRE(parse_count(text).has_error());
    CHECK(parse_count(text).error().detail.find(text) != std::string::npos);
  }
  for (const char* text : {"", "80gB", "80kiB", "GiB", "1.2.3GiB", "1.5", "99999999TiB", "-1GiB"}) {
    CAPTURE(text);
    CHECK(parse_bytes(text).has_error());
  }
}

TEST_CASE("A length can be left to what memory holds") {
  CHECK(parse_max_model_len("-1").value() == kAutoFit);
  CHECK(parse_max_model_len("auto").value() == kAutoFit);
  CHECK(parse_max_model_len("32K").value() == 32'768);
  CHECK(parse_max_model_len("0").has_error());
  CHECK(parse_max_model_len("-2").has_error());
}

TEST_CASE("Bytes print in the unit that fits") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(1536) == "1.5 KiB");
  CHECK(bytes_text(80ll << 30) == "80 GiB");
  CHECK(bytes_text(-(3ll << 20)) == "-3 MiB");
}

}  // namespace quire
