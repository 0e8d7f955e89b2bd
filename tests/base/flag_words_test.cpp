#include "base/flag_words.h"

#include <catch2/catch.hpp>
#include <vector>

namespace quire {
namespace {

FlagWord kind_of(std::string_view name) {
  if (name == "--key" || name == "-q") return FlagWord::with_value;
  return name == "--on" || name == "-h" ? FlagWord::alone : FlagWord::none;
}

MissingValue missing(const std::vector<std::string>& words) {
  return missing_value(words, kind_of);
}

}  // namespace

TEST_CASE("a flag is never the value of the flag before it", "[base][args]") {
  CHECK(missing({"--key", "--host", "x"}).flag == "--key");
  CHECK(missing({"--key", "--host=x"}).before == "--host");
  CHECK(missing({"M", "--key"}).flag == "--key");
  CHECK(missing({"M", "--key"}).before.empty());
  CHECK(missing({"--key", "-q", "int8"}).before == "-q");
  CHECK(missing({"-q", "-h"}).flag == "-q");
  CHECK(missing({"--key", "--"}).flag == "--key");
}

TEST_CASE("numbers, lone dashes and what follows = are values", "[base][args]") {
  CHECK(missing({"--key", "-1"}).flag.empty());
  CHECK(missing({"--key", "-"}).flag.empty());
  CHECK(missing({"--key", "-other"}).flag.empty());
  CHECK(missing({"--key=--host", "--on", "--on"}).flag.empty());
  CHECK(missing({"--on", "--", "--key"}).flag.empty());
}

}  // namespace quire
