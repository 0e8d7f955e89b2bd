// MessagePack that others sent.

#include <catch2/catch.hpp>
#include <random>

#include "engine/kv_events/msgpack.h"
#include "engine/kv_nixl/msgpack_value.h"

namespace quire::test {
namespace {

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

std::optional<std::uint64_t> number(std::initializer_list<int> values) {
  const auto parsed = parse_msgpack(bytes(values));
  REQUIRE(parsed.has_value());
  return parsed->as_unsigned();
}

}  // namespace

TEST_CASE("each form of a number is read", "[msgpack]") {
  CHECK(number({0x00}) == 0);
  CHECK(number({0x7f}) == 127);
  CHECK(number({0xcc, 0xff}) == 255);
  CHECK(number({0xcd, 0x01, 0x02}) == 258);
  CHECK(number({0xce, 0, 0, 1, 0}) == 256);
  CHECK(number({0xcf, 255, 255, 255, 255, 255, 255, 255, 255}) == UINT64_MAX);
  CHECK(number({0xd1, 0x01, 0x00}) == 256);
  CHECK_FALSE(number({0xff}));              // -1
  CHECK_FALSE(number({0xd0, 0x80}));        // -128
  CHECK_FALSE(number({0xca, 0, 0, 0, 0}));  // 0.0
  CHECK_FALSE(number({0xc0}));
}

TEST_CASE("what the writer writes is what the reader reads", "[msgpack]") {
  MsgpackWriter out;
  out.map(3);
  out.text("list");
  out.array(70'000);
  for (int i = 0; i < 70'000; ++i) out.integer(static_cast<std::uint64_t>(i) << (i % 48));
  out.text("long");
  out.text(std::string(300, 'x'));
  out.text("nothing");
  out.nil();
  const auto parsed = parse_msgpack(out.take());
  REQUIRE(parsed.has_value());
  const MsgpackValue::Array* list = parsed->find("list")->as_array();
  REQUIRE(list != nullptr);
  REQUIRE(list->size() == 70'000);
  CHECK((*list)[47].as_unsigned() == std::uint64_t{47} << 47);
  CHECK(*parsed->find("long")->as_text() == std::string(300, 'x'));
  CHECK(parsed->find("nothing")->is_nil());
  CHECK(parsed->find("more") == nullptr);
}

TEST_CASE("what is cut, longer than it says or nested without end is refused", "[msgpack]") {
  MsgpackWriter out;
  out.map(1);
  out.text("a");
  out.array(2);
  out.integer(1000);
  out.text("text");
  const std::string whole = out.take();
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK(parse_msgpack(whole.substr(0, size)).has_error());
  CHECK(parse_msgpack(whole + '\0').has_error());
  CHECK(parse_msgpack(std::string(1000, '\x91')).has_error());
  CHECK(parse_msgpack(bytes({0xdd, 0xff, 0xff, 0xff, 0xff})).has_error());
  CHECK(parse_msgpack(bytes({0xdf, 0xff, 0xff, 0xff, 0xff})).has_error());
  CHECK(parse_msgpack(bytes({0xc6, 0xff, 0xff, 0xff, 0xff, 1})).has_error());
  CHECK(parse_msgpack(bytes({0xc1})).has_error());
}

TEST_CASE("random bytes are read or refused", "[msgpack]") {
  std::mt19937 random(1);
  int read = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string text(random() % 24, '\0');
    for (char& c : text) c = static_cast<char>(random());
    read += parse_msgpack(text).has_value() ? 1 : 0;
  }
  CHECK(read > 1000);
}

}  // namespace quire::test
