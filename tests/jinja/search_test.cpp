#include "jinja/values/search.h"

#include <catch2/catch.hpp>
#include <random>

namespace quire::jinja {
namespace {

TEST_CASE("a part is found where the standard library finds it", "[jinja]") {
  std::mt19937 random(11);
  const auto text_of = [&](std::size_t longest, unsigned letters) {
    std::string text(random() % longest, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % letters);
    return text;
  };
  int found = 0;
  for (int round = 0; round < 50'000; ++round) {
    const unsigned letters = 1 + random() % 3;
    const std::string text = text_of(80, letters);
    std::string part = text_of(28, letters);
    if (!text.empty() && random() % 2 == 0) {
      part = text.substr(random() % text.size()).substr(0, 17 + random() % 20);
    }
    const std::size_t from = random() % (text.size() + 1);
    const std::size_t expected = text.find(part, from);
    found += expected != text.npos;
    REQUIRE(TextSearch(part).find(text, from) == expected);
    REQUIRE(ReverseSearch(text, part).find(from) == text.substr(0, from).rfind(part));
  }
  CHECK(found > 10'000);
}

}  // namespace
}  // namespace quire::jinja
