#include "jinja/values/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "jinja/values/unicode_tables.h"

namespace quire::jinja::unicode {
namespace {

bool in_ranges(char32_t c, const Range* begin, const Range* end) {
  const Range* range =
      std::lower_bound(begin, end, c, [](const Range& r, char32_t x) { return r.last < x; });
  return range != end && range->first <= c;
}

template <std::size_t n>
bool in_ranges(char32_t c, const Range (&ranges)[n]) {
  return in_ranges(c, ranges, ranges + n);
}

const SpecialCase* special_case(char32_t c) {
  const auto* end = std::end(kSpecialCases);
  const auto* found = std::lower_bound(std::begin(kSpecialCases), end, c,
                                       [](const SpecialCase& s, char32_t x) { return s.from < x; });
  return found != end && found->from == c ? found : nullptr;
}

void append_all(std::string& out, const char16_t (&mapped)[3]) {
  for (char16_t c : mapped) {
    if (c != 0) append(out, c);
  }
}

void append_upper(std::string& out, char32_t c) {
  if (const SpecialCase* special = c < 0x80 ? nullptr : special_case(c))
    return append_all(out, special->upper);
  append(out, char32_t(utf8proc_toupper(utf8proc_int32_t(c))));
}

void append_title(std::string& out, char32_t c) {
  if (const SpecialCase* special = c < 0x80 ? nullptr : special_case(c))
    return append_all(out, special->title);
  append(out, char32_t(utf8proc_totitle(utf8proc_int32_t(c))));
}

bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

// Word_Break MidLetter, MidNumLet and Single_Quote are case-ignorable besides these categories.
bool is_case_ignorable(char32_t c) {
  switch (utf8proc_category(utf8proc_int32_t(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::u32string_view(U"'.:··՟״‘’․‧︓﹒﹕'．：").find(c) != std::u32string_view::npos;
  }
}

// A sigma is final after a cased letter and before none, case-ignorable characters aside.
bool is_final_sigma(std::string_view text, std::size_t begin, std::size_t end) {
  bool after_cased = false;
  while (begin > 0 && !after_cased) {
    const char32_t c = previous(text, begin);
    if (is_case_ignorable(c)) continue;
    if (!is_cased(c)) return false;
    after_cased = true;
  }
  while (end < text.size()) {
    const char32_t c = next(text, end);
    if (!is_case_ignorable(c)) return after_cased && !is_cased(c);
  }
  return after_cased;
}

void append_lower(std::string& out, char32_t c, std::string_view text, std::size_t begin,
                  std::size_t end) {
  constexpr char32_t kSigma = 0x3a3;
  constexpr char32_t kFinalSigma = 0x3c2;
  constexpr char32_t kDottedI = 0x130;
  if (c == kSigma && is_final_sigma(text, begin, end)) return append(out, kFinalSigma);
  if (c == kDottedI) return void(out.append("i̇"));
  append(out, char32_t(utf8proc_tolower(utf8proc_int32_t(c))));
}

// Calls visit(code point, begin, end) for each.
template <class Visit>
void for_each(std::string_view text, Visit visit) {
  for (std::size_t end = 0; end < text.size();) {
    const std::size_t begin = end;
    const char32_t c = next(text, end);
    visit(c, begin, end);
  }
}

template <class IsStripped>
std::string_view strip_if(std::string_view text, bool left, bool right, IsStripped is_stripped) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (left && begin < end) {
    std::size_t after = begin;
    if (!is_stripped(next(text, after))) break;
    begin = after;
  }
  while (right && begin < end) {
    std::size_t before = end;
    if (!is_stripped(previous(text, before))) break;
    end = before;
  }
  return text.substr(begin, end - begin);
}

}  // namespace

bool valid(std::string_view text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (std::size_t i = 0; i < text.size();) {
    if (bytes[i] < 0x80) {
      ++i;
      continue;
    }
    utf8proc_int32_t c = 0;
    const auto length = utf8proc_iterate(bytes + i, utf8proc_ssize_t(text.size() - i), &c);
    if (length < 1) return false;
    i += std::size_t(length);
  }
  return true;
}

std::size_t count(std::string_view text) {
  // Eight bytes at a time: what continues a character has the bits 10 at its top.
  constexpr std::uint64_t kLowest = 0x0101010101010101;
  std::size_t continued = 0, at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, text.data() + at, 8);
    continued += (((bytes >> 7) & ~(bytes >> 6) & kLowest) * kLowest) >> 56;
  }
  for (; at < text.size(); ++at) continued += (text[at] & 0xc0) == 0x80;
  return text.size() - continued;
}

void append(std::string& out, char32_t c) {
  if (c < 0x80) return out.push_back(char(c));
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(utf8proc_int32_t(c), bytes);
  out.append(reinterpret_cast<const char*>(bytes), std::size_t(length));
}

char32_t next(std::string_view text, std::size_t& position) {
  const auto byte = [&](std::size_t i) { return char32_t(std::uint8_t(text[position + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) {
    ++position;
    return lead;
  }
  const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  char32_t c = lead & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) c = c << 6 | (byte(i) & 0x3f);
  position += length;
  return c;
}

char32_t previous(std::string_view text, std::size_t& position) {
  do {
    --position;
  } while ((text[position] & 0xc0) == 0x80);
  std::size_t start = position;
  return next(text, start);
}

std::size_t skip(std::string_view text, std::size_t n, std::size_t from) {
  std::size_t i = from;
  for (; n > 0 && i < text.size(); --n) {
    ++i;
    while (i < text.size() && (text[i] & 0xc0) == 0x80) ++i;
  }
  return i;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_alpha(char32_t c) {
  const auto category = utf8proc_category(utf8proc_int32_t(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  return utf8proc_category(utf8proc_int32_t(c)) == UTF8PROC_CATEGORY_ND;
}

// Every script's digits are in one row from zero to nine, or in several rows without a gap.
int decimal_value(char32_t c) {
  char32_t zero = c;
  while (is_decimal(zero - 1)) --zero;
  return int((c - zero) % 10);
}

bool is_digit(char32_t c) { return is_decimal(c) || in_ranges(c, kOtherDigits); }

bool is_numeric(char32_t c) {
  const auto category = utf8proc_category(utf8proc_int32_t(c));
  return (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) ||
         in_ranges(c, kNumericLetters);
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }

bool is_lower(char32_t c) {
  return utf8proc_category(utf8proc_int32_t(c)) == UTF8PROC_CATEGORY_LL ||
         in_ranges(c, kOtherLower);
}

bool is_upper(char32_t c) {
  return utf8proc_category(utf8proc_int32_t(c)) == UTF8PROC_CATEGORY_LU ||
         in_ranges(c, kOtherUpper);
}

bool is_title(char32_t c) { return utf8proc_category(utf8proc_int32_t(c)) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t c) {
  if (c < 0x7f) return c >= 0x20;
  const auto category = utf8proc_category(utf8proc_int32_t(c));
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

bool is_word(char32_t c) { return c == '_' || is_alnum(c); }

bool is_identifier(std::string_view text) {
  bool first = true;
  bool good = !text.empty();
  for_each(text, [&](char32_t c, std::size_t, std::size_t) {
    const auto category = utf8proc_category(utf8proc_int32_t(c));
    const bool starts = c == '_' || is_alpha(c) || category == UTF8PROC_CATEGORY_NL;
    const bool continues = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                           category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_PC;
    good = good && (starts || (!first && continues));
    first = false;
  });
  return good;
}

std::string lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each(text, [&](char32_t c, std::size_t begin, std::size_t end) {
    append_lower(out, c, text, begin, end);
  });
  return out;
}

std::string upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each(text, [&](char32_t c, std::size_t, std::size_t) { append_upper(out, c); });
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool inside_word = false;
  for_each(text, [&](char32_t c, std::size_t begin, std::size_t end) {
    if (inside_word) {
      append_lower(out, c, text, begin, end);
    } else {
      append_title(out, c);
    }
    inside_word = is_cased(c);
  });
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for_each(text, [&](char32_t c, std::size_t begin, std::size_t end) {
    if (begin == 0) {
      append_title(out, c);
    } else {
      append_lower(out, c, text, begin, end);
    }
  });
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for_each(text, [&](char32_t c, std::size_t begin, std::size_t end) {
    if (is_upper(c)) {
      append_lower(out, c, text, begin, end);
    } else if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append(out, c);
    }
  });
  return out;
}

std::string fold_case(std::string_view text) {
  std::string out;
  for_each(text, [&](char32_t c, std::size_t, std::size_t) {
    utf8proc_int32_t folded[4];
    int boundary = 0;
    const auto n =
        utf8proc_decompose_char(utf8proc_int32_t(c), folded, 4, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < n; ++i) append(out, char32_t(folded[i]));
  });
  return out;
}

std::string_view strip(std::string_view text, bool left, bool right) {
  return strip_if(text, left, right, is_space);
}

std::string_view strip(std::string_view text, std::string_view chars, bool left, bool right) {
  std::u32string set;
  for_each(chars, [&](char32_t c, std::size_t, std::size_t) { set.push_back(c); });
  std::sort(set.begin(), set.end());
  return strip_if(text, left, right,
                  [&](char32_t c) { return std::binary_search(set.begin(), set.end(), c); });
}

}  // namespace quire::jinja::unicode
