// What a NIXL agent says of itself, before the library sees it.

#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "tests/engine/kv_nixl/made_blob.h"
#include "tests/support/mutate.h"

namespace quire::test {

TEST_CASE("an agent's name and memory are read", "[nixl]") {
  const auto blob =
      parse_agent_blob(made_blob("peer", {{0, 4096, 1 << 20, 0}, {1, 1 << 30, 64, 3}}));
  REQUIRE(blob.has_value());
  CHECK(blob->name == "peer");
  REQUIRE(blob->ranges.size() == 2);
  CHECK(blob->ranges[1].memory == 1);
  CHECK(blob->ranges[1].device == 3);
  CHECK(blob->covers(0, 4096, 1 << 20));
  CHECK(blob->covers(0, 5000, 100));
  CHECK_FALSE(blob->covers(0, 4095, 2));
  CHECK_FALSE(blob->covers(0, 4096, (1 << 20) + 1));
  CHECK_FALSE(blob->covers(0, 4096 + (1 << 20) - 1, 2));
  CHECK_FALSE(blob->covers(1, 4096, 1));
  CHECK_FALSE(blob->covers(0, 8192, UINT64_MAX));
}

TEST_CASE("damaged metadata of an agent is refused", "[nixl]") {
  const std::string whole = made_blob("peer", {{0, 4096, 1 << 20, 0}});
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK(parse_agent_blob(whole.substr(0, size)).has_error());
  CHECK(parse_agent_blob(whole + "x").has_error());
  CHECK(parse_agent_blob(made_blob("", {{0, 1, 1, 0}})).has_error());
  CHECK(parse_agent_blob(made_blob("peer", {{0, 4096, 0, 0}})).has_error());
  CHECK(parse_agent_blob(made_blob("peer", {{0, UINT64_MAX, 2, 0}})).has_error());
  std::string other = whole;
  other.replace(other.find("UCX"), 3, "XYZ");
  CHECK(parse_agent_blob(other).has_error());
}

// Nothing outside of it is read whatever it says of lengths; what is accepted has sane ranges.
TEST_CASE("mutated metadata of an agent is refused or sane", "[nixl]") {
  const std::string whole =
      made_blob("peer", {{0, 4096, 1 << 20, 0}, {0, 1 << 28, 1 << 16, 0}, {1, 1 << 30, 64, 3}});
  std::mt19937 random(2);
  int accepted = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string text = whole;
    overwrite_bytes(text, 3, random);
    const auto blob = parse_agent_blob(text);
    if (!blob) continue;
    ++accepted;
    for (const AgentBlob::Range& range : blob->ranges)
      REQUIRE(range.address + range.bytes > range.address);
  }
  CHECK(accepted > 100);
  CHECK(accepted < 90'000);
}

}  // namespace quire::test
