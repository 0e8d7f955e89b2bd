#include "jinja/values/search.h"

#include <catch2/catch.hpp>
#include <random>

#include "jinja/values/unicode.h"

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

TEST_CASE("characters are counted as one by one, wherever the text begins and ends", "[jinja]") {
  const std::string text = "a\xC3\xA9\xE6\xBC\xA2 bcdefgh\xF0\x9F\x99\x82ij\x80\xBFklmnopqrstuvw\xC3\xA9";
  for (std::size_t begin = 0; begin <= text.size(); ++begin) {
    for (std::size_t end = begin; end <= text.size(); ++end) {
      const std::string_view part = std::string_view(text).substr(begin, end - begin);
      std::size_t expected = 0;
      for (const char c : part) expected += (c & 0xC0) != 0x80;
      REQUIRE(unicode::count(part) == expected);
    }
  }
}

}  // namespace
}  // namespace quire::jinja
