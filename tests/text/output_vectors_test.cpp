// Model outputs of all dialects, cut in every way.

#include <catch2/catch.hpp>
#include <random>

#include "tests/text/output_case.h"

using namespace quire;
using namespace quire::test;

namespace {

std::vector<std::string_view> around_markers(std::string_view text,
                                             const std::vector<std::string>& markers) {
  std::vector<std::string_view> pieces;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t longest = 0;
    for (const std::string& marker : markers) {
      if (text.substr(at).starts_with(marker)) longest = std::max(longest, marker.size());
    }
    if (longest > 0) {
      if (at > begin) pieces.push_back(text.substr(begin, at - begin));
      pieces.push_back(text.substr(at, longest));
      begin = at += longest;
    } else {
      ++at;
    }
  }
  if (begin < text.size()) pieces.push_back(text.substr(begin));
  return pieces;
}

std::vector<std::string_view> at_random(std::string_view text, std::mt19937& random, int mean) {
  std::vector<std::string_view> pieces;
  const auto all = characters(text);
  for (std::size_t i = 0; i < all.size();) {
    const std::size_t count = std::min<std::size_t>(1 + random() % (2 * mean), all.size() - i);
    const char* end = all[i + count - 1].data() + all[i + count - 1].size();
    pieces.emplace_back(all[i].data(), std::size_t(end - all[i].data()));
    i += count;
  }
  return pieces;
}

}  // namespace

TEST_CASE("outputs of every dialect mean what they should, however they are cut",
          "[text][output]") {
  REQUIRE(output_cases().size() > 1000);
  std::mt19937 random(7);
  int failures = 0;
  for (const OutputCase& c : output_cases()) {
    const Parsed whole = parse(c.format, {c.text});
    const std::string reason = mismatch(c, whole);
    bool same = parse(c.format, characters(c.text)) == whole;
    same = same &&
           parse(c.format, around_markers(c.text, markers_of(c.format.dialect->name))) == whole;
    for (const int mean : {2, 5, 17}) {
      const int step = c.text.size() > 6000 ? 50 * mean : mean;
      same = same && parse(c.format, at_random(c.text, random, step)) == whole;
    }
    if (reason.empty() && same) continue;
    UNSCOPED_INFO(c.id << ": " << (same ? reason : "another result when cut") << ": " << whole);
    if (++failures > 5) break;
  }
  CHECK(failures == 0);
}

TEST_CASE("long answers come as they are written", "[text][output]") {
  int num_live = 0;
  for (const OutputCase& c : output_cases()) {
    if (!c.live) continue;
    ++num_live;
    OutputParser parser(c.format);
    std::size_t early = 0, all = 0;
    const auto pieces = characters(c.text);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const OutputDelta delta = parser.push(pieces[i]);
      all += delta.content.size() + delta.reasoning.size();
      if (i * 10 <= pieces.size() * 9) early = all;
    }
    INFO(c.id);
    CHECK(early * 10 >= all * 8);
  }
  CHECK(num_live >= 25);
}
