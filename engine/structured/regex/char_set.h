#pragma once
// Sets of Unicode scalar values, and how a text spells them: as UTF-8, or inside of a JSON string.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/structured/regex/regex_store.h"

namespace quire::structured {

// Ranges, ascending, disjoint, not adjacent, without surrogates.
class CharSet {
 public:
  static constexpr char32_t kLast = 0x10ffff;

  CharSet() = default;
  static CharSet all();
  static CharSet of(char32_t first, char32_t last);

  void add(char32_t first, char32_t last);
  void add(const CharSet& other);
  CharSet complement() const;
  CharSet intersected(const CharSet& other) const;
  void fold_ascii_case();
  bool has(char32_t c) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<std::pair<char32_t, char32_t>>& ranges() const { return ranges_; }

 private:
  void merge();

  std::vector<std::pair<char32_t, char32_t>> ranges_;
};

enum class Spelling : std::uint8_t {
  plain,       // UTF-8
  json,        // raw where JSON allows it, short escapes, \u00XX for controls
  json_loose,  // and \/, \uXXXX for every character, pairs of surrogates beyond U+FFFF
};

RegexId chars_regex(RegexStore& store, const CharSet& set, Spelling spelling);

// The one way in which constants and keys are written: escaped only where JSON demands it.
std::string json_escaped(std::string_view utf8);
// The same characters, in all the ways of Spelling::json.
RegexId json_spellings(RegexStore& store, std::string_view utf8);

// Next scalar of a valid UTF-8 text; `at` moves behind it. Throws GrammarFailure{syntax}.
char32_t next_char(std::string_view text, std::size_t& at);

}  // namespace quire::structured
