#include "engine/structured/regex/unicode_property.h"

#include <utf8proc.h>

#include <array>
#include <cstdint>

namespace quire::structured {
namespace {

using Mask = std::uint32_t;  // one bit per category

constexpr Mask bits(std::initializer_list<utf8proc_category_t> categories) {
  Mask mask = 0;
  for (const utf8proc_category_t one : categories) mask |= Mask{1} << one;
  return mask;
}

struct Named {
  std::string_view brief, full;
  Mask mask;
};

constexpr Mask kCased = bits({UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LT});
constexpr Mask kLetter = kCased | bits({UTF8PROC_CATEGORY_LM, UTF8PROC_CATEGORY_LO});
constexpr Mask kMark = bits({UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MC, UTF8PROC_CATEGORY_ME});
constexpr Mask kNumber = bits({UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_NO});
constexpr Mask kPunctuation =
    bits({UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PD, UTF8PROC_CATEGORY_PS, UTF8PROC_CATEGORY_PE,
          UTF8PROC_CATEGORY_PI, UTF8PROC_CATEGORY_PF, UTF8PROC_CATEGORY_PO});
constexpr Mask kSymbol =
    bits({UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SC, UTF8PROC_CATEGORY_SK, UTF8PROC_CATEGORY_SO});
constexpr Mask kSeparator =
    bits({UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZL, UTF8PROC_CATEGORY_ZP});
constexpr Mask kUnassigned = bits({UTF8PROC_CATEGORY_CN});
constexpr Mask kOther = kUnassigned | bits({UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CF,
                                            UTF8PROC_CATEGORY_CS, UTF8PROC_CATEGORY_CO});

constexpr Named kNames[] = {
    {"L", "Letter", kLetter},
    {"LC", "Cased_Letter", kCased},
    {"Lu", "Uppercase_Letter", bits({UTF8PROC_CATEGORY_LU})},
    {"Ll", "Lowercase_Letter", bits({UTF8PROC_CATEGORY_LL})},
    {"Lt", "Titlecase_Letter", bits({UTF8PROC_CATEGORY_LT})},
    {"Lm", "Modifier_Letter", bits({UTF8PROC_CATEGORY_LM})},
    {"Lo", "Other_Letter", bits({UTF8PROC_CATEGORY_LO})},
    {"M", "Mark", kMark},
    {"Mn", "Nonspacing_Mark", bits({UTF8PROC_CATEGORY_MN})},
    {"Mc", "Spacing_Mark", bits({UTF8PROC_CATEGORY_MC})},
    {"Me", "Enclosing_Mark", bits({UTF8PROC_CATEGORY_ME})},
    {"N", "Number", kNumber},
    {"Nd", "Decimal_Number", bits({UTF8PROC_CATEGORY_ND})},
    {"Nl", "Letter_Number", bits({UTF8PROC_CATEGORY_NL})},
    {"No", "Other_Number", bits({UTF8PROC_CATEGORY_NO})},
    {"P", "Punctuation", kPunctuation},
    {"Pc", "Connector_Punctuation", bits({UTF8PROC_CATEGORY_PC})},
    {"Pd", "Dash_Punctuation", bits({UTF8PROC_CATEGORY_PD})},
    {"Ps", "Open_Punctuation", bits({UTF8PROC_CATEGORY_PS})},
    {"Pe", "Close_Punctuation", bits({UTF8PROC_CATEGORY_PE})},
    {"Pi", "Initial_Punctuation", bits({UTF8PROC_CATEGORY_PI})},
    {"Pf", "Final_Punctuation", bits({UTF8PROC_CATEGORY_PF})},
    {"Po", "Other_Punctuation", bits({UTF8PROC_CATEGORY_PO})},
    {"S", "Symbol", kSymbol},
    {"Sm", "Math_Symbol", bits({UTF8PROC_CATEGORY_SM})},
    {"Sc", "Currency_Symbol", bits({UTF8PROC_CATEGORY_SC})},
    {"Sk", "Modifier_Symbol", bits({UTF8PROC_CATEGORY_SK})},
    {"So", "Other_Symbol", bits({UTF8PROC_CATEGORY_SO})},
    {"Z", "Separator", kSeparator},
    {"Zs", "Space_Separator", bits({UTF8PROC_CATEGORY_ZS})},
    {"Zl", "Line_Separator", bits({UTF8PROC_CATEGORY_ZL})},
    {"Zp", "Paragraph_Separator", bits({UTF8PROC_CATEGORY_ZP})},
    {"C", "Other", kOther},
    {"Cc", "Control", bits({UTF8PROC_CATEGORY_CC})},
    {"Cf", "Format", bits({UTF8PROC_CATEGORY_CF})},
    {"Cn", "Unassigned", kUnassigned},
    {"Co", "Private_Use", bits({UTF8PROC_CATEGORY_CO})},
    {"Assigned", "Assigned", ~kUnassigned},
    {"Any", "Any", ~Mask{0}},
};

struct Run {
  char32_t first, last;
  Mask category;
};

// All characters as runs of one category; looked up once.
const std::vector<Run>& runs() {
  static const std::vector<Run> all = [] {
    std::vector<Run> made;
    for (char32_t c = 0; c <= CharSet::kLast; ++c) {
      const Mask category = Mask{1} << utf8proc_category(static_cast<utf8proc_int32_t>(c));
      if (!made.empty() && made.back().category == category) {
        made.back().last = c;
      } else {
        made.push_back({c, c, category});
      }
    }
    return made;
  }();
  return all;
}

}  // namespace

std::optional<CharSet> chars_of_property(std::string_view name) {
  if (name == "ASCII") return CharSet::of(0, 0x7f);
  for (const std::string_view prefix : {"gc=", "General_Category="}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  for (const Named& one : kNames) {
    if (name != one.brief && name != one.full) continue;
    CharSet set;
    for (const Run& run : runs()) {
      if ((run.category & one.mask) != 0) set.add(run.first, run.last);
    }
    return set;
  }
  return std::nullopt;
}

}  // namespace quire::structured
