#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <iterator>
#include <map>
#include <string_view>

#include "base/utf8.h"

namespace quire {
namespace {

struct CodeRange {
  char32_t first, last;
};

// Characters that utf8proc knows to be P, M or Mn and the library's tables do not.
constexpr CodeRange kNotYetPunctuation[] = {
    {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},
    {0xC84, 0xC84},     {0x1B7D, 0x1B7E},   {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},
    {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59}, {0x10F86, 0x10F89}, {0x1144B, 0x1144F},
    {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9},
    {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
    {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11C41, 0x11C45},
    {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F}, {0x11FFF, 0x11FFF},
    {0x12FF1, 0x12FF2}, {0x16E97, 0x16E9A}, {0x16FE2, 0x16FE2}, {0x1E95E, 0x1E95F},
};

constexpr CodeRange kNotYetMark[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xAFA, 0xAFF},     {0xB55, 0xB55},     {0xC04, 0xC04},     {0xC3C, 0xC3C},
    {0xCF3, 0xCF3},     {0xD00, 0xD00},     {0xD3B, 0xD3C},     {0xD81, 0xD81},
    {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x1715, 0x1715},   {0x180F, 0x180F},
    {0x1ABF, 0x1ACE},   {0x1CF7, 0x1CF7},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
    {0xA8FF, 0xA8FF},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x11073, 0x11074},
    {0x110C2, 0x110C2}, {0x11145, 0x11146}, {0x111C9, 0x111C9}, {0x111CE, 0x111CF},
    {0x11241, 0x11241}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x1182C, 0x1183A},
    {0x11930, 0x11935}, {0x11937, 0x11938}, {0x1193B, 0x1193E}, {0x11940, 0x11940},
    {0x11942, 0x11943}, {0x119D1, 0x119D7}, {0x119DA, 0x119E0}, {0x119E4, 0x119E4},
    {0x11A01, 0x11A0A}, {0x11A33, 0x11A39}, {0x11A3B, 0x11A3E}, {0x11A47, 0x11A47},
    {0x11A51, 0x11A5B}, {0x11A8A, 0x11A99}, {0x11D31, 0x11D36}, {0x11D3A, 0x11D3A},
    {0x11D3C, 0x11D3D}, {0x11D3F, 0x11D45}, {0x11D47, 0x11D47}, {0x11D8A, 0x11D8E},
    {0x11D90, 0x11D91}, {0x11D93, 0x11D97}, {0x11EF3, 0x11EF6}, {0x11F00, 0x11F01},
    {0x11F03, 0x11F03}, {0x11F34, 0x11F3A}, {0x11F3E, 0x11F42}, {0x13440, 0x13440},
    {0x13447, 0x13455}, {0x16F4F, 0x16F4F}, {0x16F7F, 0x16F87}, {0x16FE4, 0x16FE4},
    {0x16FF0, 0x16FF1}, {0x1CF00, 0x1CF2D}, {0x1CF30, 0x1CF46}, {0x1E08F, 0x1E08F},
    {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
};

constexpr CodeRange kNotYetNonspacing[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8E1},     {0x9FE, 0x9FE},
    {0xAFA, 0xAFF},     {0xB55, 0xB55},     {0xC04, 0xC04},     {0xC3C, 0xC3C},
    {0xD00, 0xD00},     {0xD3B, 0xD3C},     {0xD81, 0xD81},     {0xEBA, 0xEBA},
    {0xECE, 0xECE},     {0x180F, 0x180F},   {0x1885, 0x1886},   {0x1ABF, 0x1ACE},
    {0x1DF6, 0x1DFB},   {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},   {0xA8FF, 0xA8FF},
    {0xA9BD, 0xA9BD},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x11073, 0x11074},
    {0x110C2, 0x110C2}, {0x111C9, 0x111C9}, {0x111CF, 0x111CF}, {0x1123E, 0x1123E},
    {0x11241, 0x11241}, {0x1133B, 0x1133B}, {0x11438, 0x1143F}, {0x11442, 0x11444},
    {0x11446, 0x11446}, {0x1145E, 0x1145E}, {0x1182F, 0x11837}, {0x11839, 0x1183A},
    {0x1193B, 0x1193C}, {0x1193E, 0x1193E}, {0x11943, 0x11943}, {0x119D4, 0x119D7},
    {0x119DA, 0x119DB}, {0x119E0, 0x119E0}, {0x11A01, 0x11A0A}, {0x11A33, 0x11A38},
    {0x11A3B, 0x11A3E}, {0x11A47, 0x11A47}, {0x11A51, 0x11A56}, {0x11A59, 0x11A5B},
    {0x11A8A, 0x11A96}, {0x11A98, 0x11A99}, {0x11C30, 0x11C36}, {0x11C38, 0x11C3D},
    {0x11C3F, 0x11C3F}, {0x11C92, 0x11CA7}, {0x11CAA, 0x11CB0}, {0x11CB2, 0x11CB3},
    {0x11CB5, 0x11CB6}, {0x11D31, 0x11D36}, {0x11D3A, 0x11D3A}, {0x11D3C, 0x11D3D},
    {0x11D3F, 0x11D45}, {0x11D47, 0x11D47}, {0x11D90, 0x11D91}, {0x11D95, 0x11D95},
    {0x11D97, 0x11D97}, {0x11EF3, 0x11EF4}, {0x11F00, 0x11F01}, {0x11F36, 0x11F3A},
    {0x11F40, 0x11F40}, {0x11F42, 0x11F42}, {0x13440, 0x13440}, {0x13447, 0x13455},
    {0x16F4F, 0x16F4F}, {0x16FE4, 0x16FE4}, {0x1CF00, 0x1CF2D}, {0x1CF30, 0x1CF46},
    {0x1E000, 0x1E006}, {0x1E008, 0x1E018}, {0x1E01B, 0x1E021}, {0x1E023, 0x1E024},
    {0x1E026, 0x1E02A}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E944, 0x1E94A},
};

template <std::size_t n>
bool contains(const CodeRange (&ranges)[n], char32_t c) {
  const auto* range = std::partition_point(std::begin(ranges), std::end(ranges),
                                           [c](const CodeRange& r) { return r.last < c; });
  return range != std::end(ranges) && range->first <= c;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool in(char32_t c, utf8proc_category_t first, utf8proc_category_t last) {
  const auto own = category(c);
  return first <= own && own <= last;
}

std::uint8_t class_bits(char32_t c) {
  using Bits = CharClasses;
  std::uint8_t bits = is_white_space(c) ? Bits::space : 0;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return bits | Bits::letter | Bits::upper_like;
    case UTF8PROC_CATEGORY_LL:
      return bits | Bits::letter | Bits::lower_like;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return bits | Bits::letter | Bits::upper_like | Bits::lower_like;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return bits | Bits::mark | Bits::upper_like | Bits::lower_like;
    default:
      if (is_numeric(c)) return bits | Bits::number;
      if (in(c, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO)) return bits | Bits::punctuation;
      if (in(c, UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SO)) return bits | Bits::symbol;
      return bits;
  }
}

}  // namespace

const CharClasses& CharClasses::get() {
  static const CharClasses classes;
  return classes;
}

CharClasses::CharClasses() {
  std::map<std::array<std::uint8_t, 128>, std::uint8_t> known;
  for (char32_t page = 0; page < pages_.size(); ++page) {
    std::array<std::uint8_t, 128> bits{};
    for (char32_t i = 0; i < 128; ++i) bits[i] = class_bits(page * 128 + i);
    const auto [place, added] = known.try_emplace(bits, static_cast<std::uint8_t>(known.size()));
    assert(known.size() <= 256);
    if (added) bits_.insert(bits_.end(), bits.begin(), bits.end());
    pages_[page] = place->second;
  }
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) { return in(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO); }

bool is_letter(char32_t c) { return in(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO); }

bool is_word(char32_t c) {
  if (c < 0x80) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  }
  if (in(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_NL) || category(c) == UTF8PROC_CATEGORY_PC) {
    return true;
  }
  // Join_Control, and what is Alphabetic without being a letter, a mark or a number.
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  if (c == 0x166D || c == 0x111C9) return true;  // P until they were reclassified
  return in(c, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO) && !contains(kNotYetPunctuation, c);
}

bool is_combining_mark(char32_t c) {
  if (c == 0x1CF2 || c == 0x1CF3) return true;  // now Lo
  return in(c, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME) && !contains(kNotYetMark, c);
}

bool is_nonspacing_mark(char32_t c) {
  if (c == 0x1734) return true;  // now Mc
  return category(c) == UTF8PROC_CATEGORY_MN && !contains(kNotYetNonspacing, c);
}

bool is_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const bool newer_format =
      c == 0x890 || c == 0x891 || c == 0x8E2 || c == 0x110CD || (c >= 0x13430 && c <= 0x1343F);
  return in(c, UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO) && !newer_format;
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
         (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

void append_lowercase(std::string& out, char32_t c) {
  utf8_append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  if (c == 0x130) utf8_append(out, 0x307);  // the only lower case of two characters
}

}  // namespace quire
