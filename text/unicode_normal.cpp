#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "text/unicode.h"
#include "base/utf8.h"

namespace quire {
namespace {

constexpr char32_t kHangulBase = 0xAC00, kLeadBase = 0x1100, kVowelBase = 0x1161,
                   kTrailBase = 0x11A7, kHangulCount = 11172, kVowelCount = 21, kTrailCount = 28;

// Decomposable since a Unicode version after 9.
bool decomposes_later(char32_t c) {
  return c == 0x32FF || (c >= 0xA7F2 && c <= 0xA7F4) || c == 0xAB69 ||
         (c >= 0x10781 && c <= 0x107BA) || c == 0x11938 || c == 0x1F16C ||
         (c >= 0x1E030 && c <= 0x1E06D) || (c >= 0x1FBF0 && c <= 0x1FBF9);
}

int combining_class(char32_t c) {
  const int combining = utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
  return combining != 0 && is_combining_mark(c) ? combining : 0;
}

struct Char {
  char32_t c;
  int combining_class;
};

// The full decomposition of one character, appended.
void decompose(char32_t c, bool compatibility, std::vector<Char>& out) {
  if (c < 0x80 || decomposes_later(c)) {
    out.push_back({c, 0});
    return;
  }
  utf8proc_int32_t parts[32];
  int last_boundclass = UTF8PROC_BOUNDCLASS_START;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0));
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32, options,
                                             &last_boundclass);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    const auto part = static_cast<char32_t>(parts[i]);
    out.push_back({part, combining_class(part)});
  }
}

void reorder(std::vector<Char>& chars) {
  for (auto run = chars.begin(); run != chars.end();) {
    if (run->combining_class == 0) {
      ++run;
      continue;
    }
    const auto end =
        std::find_if(run, chars.end(), [](const Char& c) { return c.combining_class == 0; });
    std::stable_sort(run, end, [](const Char& a, const Char& b) {
      return a.combining_class < b.combining_class;
    });
    run = end;
  }
}

// The primary composite of a pair, 0: none.
char32_t composed(char32_t first, char32_t second) {
  if (first >= kLeadBase && first < kLeadBase + 19 && second >= kVowelBase &&
      second < kVowelBase + kVowelCount) {
    return kHangulBase + ((first - kLeadBase) * kVowelCount + second - kVowelBase) * kTrailCount;
  }
  if (first >= kHangulBase && first < kHangulBase + kHangulCount &&
      (first - kHangulBase) % kTrailCount == 0 && second > kTrailBase &&
      second < kTrailBase + kTrailCount) {
    return first + second - kTrailBase;
  }
  utf8proc_int32_t pair[] = {static_cast<utf8proc_int32_t>(first),
                             static_cast<utf8proc_int32_t>(second)};
  constexpr utf8proc_uint16_t kNever = UINT16_MAX;
  if (utf8proc_get_property(pair[0])->comb_index == kNever ||
      utf8proc_get_property(pair[1])->comb_index == kNever) {
    return 0;
  }
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  if (utf8proc_normalize_utf32(pair, 2, options) != 1) return 0;
  const auto c = static_cast<char32_t>(pair[0]);
  return decomposes_later(c) ? 0 : c;
}

// Canonical composition in place, UAX #15 D117.
void compose(std::vector<Char>& chars) {
  std::size_t kept = 0;
  std::size_t starter = chars.size();
  for (std::size_t i = 0; i < chars.size(); ++i) {
    const Char current = chars[i];
    if (starter < kept) {
      const bool adjacent = starter + 1 == kept;
      const bool blocked = !adjacent && chars[kept - 1].combining_class >= current.combining_class;
      if (adjacent || !blocked) {
        if (const char32_t c = composed(chars[starter].c, current.c)) {
          chars[starter].c = c;
          continue;
        }
      }
    }
    if (current.combining_class == 0) starter = kept;
    chars[kept++] = current;
  }
  chars.resize(kept);
}

std::string normal_form_of_all(std::string_view text, NormalForm form) {
  const bool compatibility = form == NormalForm::nfkc || form == NormalForm::nfkd;
  std::vector<Char> chars;
  chars.reserve(text.size());
  for_each_char(text, [&](char32_t c, std::string_view) { decompose(c, compatibility, chars); });
  reorder(chars);
  if (form == NormalForm::nfc || form == NormalForm::nfkc) compose(chars);
  std::string out;
  out.reserve(text.size());
  for (const Char& c : chars) utf8_append(out, c.c);
  return out;
}

// Characters that stay what they are, whatever stands before them: a text can be cut in front of
// one and normalized in parts.
class StableChars {
 public:
  static const StableChars& of(NormalForm form) {
    switch (form) {
      case NormalForm::nfc:
        return of<NormalForm::nfc>();
      case NormalForm::nfd:
        return of<NormalForm::nfd>();
      case NormalForm::nfkc:
        return of<NormalForm::nfkc>();
      default:
        return of<NormalForm::nfkd>();
    }
  }
  bool contains(char32_t c) const { return c >= kEnd || !unstable_[c]; }

 private:
  static constexpr char32_t kEnd = 0x30000;  // nothing behind it changes or combines

  template <NormalForm form>
  static const StableChars& of() {
    static const StableChars chars(form);
    return chars;
  }

  explicit StableChars(NormalForm form) : unstable_(kEnd) {
    const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
    for (char32_t c = 0x80; c < kEnd; ++c) {
      const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
      const bool hangul = c >= kHangulBase && c < kHangulBase + kHangulCount;
      if (property->decomp_seqindex == UINT16_MAX && !hangul && property->combining_class == 0) {
        continue;
      }
      std::string text;
      utf8_append(text, c);
      std::vector<Char> parts;
      decompose(c, form == NormalForm::nfkc || form == NormalForm::nfkd, parts);
      if (parts.size() > 1 || parts[0].c != c) {
        unstable_[c] = normal_form_of_all(text, form) != text;
        // What a composite ends with combines with what stands before it.
        if (composes) unstable_[parts.back().c] = true;
      }
      if (parts[0].combining_class != 0) unstable_[c] = true;
    }
  }

  std::vector<bool> unstable_;
};

}  // namespace

std::string normal_form(std::string_view text, NormalForm form) {
  const StableChars& stable = StableChars::of(form);
  std::string out;
  std::size_t done = 0;   // up to here `out` has it
  std::size_t start = 0;  // of the last stable character
  bool unstable = false;  // something behind `start` is not
  const auto finish_part = [&](std::size_t end) {
    if (!unstable) return;
    out.append(text, done, start - done);
    out += normal_form_of_all(text.substr(start, end - start), form);
    done = end;
  };
  for_each_char(text, [&](char32_t c, std::string_view bytes) {
    if (!stable.contains(c)) {
      unstable = true;
      return;
    }
    const auto here = static_cast<std::size_t>(bytes.data() - text.data());
    finish_part(here);
    start = here;
    unstable = false;
  });
  finish_part(text.size());
  return out.append(text, done);
}

}  // namespace quire
