#include "openapi/json_writer.h"

#include <catch2/catch.hpp>
#include <limits>

using namespace quire;
using namespace quire::openapi;

namespace {

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string number(double value) {
  std::string out;
  JsonWriter(out).number(value);
  return out;
}

}  // namespace

TEST_CASE("strings are escaped as JSON asks and no further", "[openapi][json]") {
  CHECK(quoted("plain") == R"("plain")");
  CHECK(quoted("a\"b\\c\n\r\t\x01\x7f") == R"("a\"b\\c\n\r\t\u0001\u007f")");
  CHECK(quoted("größe 日本 🙂") == "\"größe 日本 🙂\"");
  CHECK(quoted("") == R"("")");
}

TEST_CASE("bytes that are not UTF-8 become one U+FFFD per broken part", "[openapi][json]") {
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(quoted("a\xFFz") == "\"a" + bad + "z\"");
  CHECK(quoted("\xC0\x80") == "\"" + bad + bad + "\"");            // overlong
  CHECK(quoted("\xED\xA0\x80") == "\"" + bad + bad + bad + "\"");  // a surrogate
  CHECK(quoted("\xF0\x9F\x99") == "\"" + bad + "\"");              // cut short
  CHECK(quoted("\xF0\x9F\x99z") == "\"" + bad + "z\"");
}

TEST_CASE("numbers are JSON numbers, whatever they are", "[openapi][json]") {
  CHECK(number(0.5) == "0.5");
  CHECK(number(3) == "3.0");
  CHECK(number(-1e-30) == "-1e-30");
  CHECK(number(-std::numeric_limits<double>::infinity()) == "-1.7976931348623157e+308");
  CHECK(number(std::numeric_limits<double>::quiet_NaN()) == "0.0");
}

TEST_CASE("commas come where values follow each other", "[openapi][json]") {
  std::string out;
  JsonWriter json(out);
  const std::vector<TokenId> ids{1, -2};
  json.begin_object().key("a").begin_array().integer(1).null().begin_object().end_object();
  json.end_array().key("b").ids(ids).any_key("c\"").boolean(true).key("d").raw("{}").end_object();
  CHECK(out == R"({"a":[1,null,{}],"b":[1,-2],"c\"":true,"d":{}})");
}
