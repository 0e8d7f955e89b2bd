// Hand-written forms of the expressions that the large model families split by: one pass, no
// backtracking. Each must cut every text exactly where its expression does.

#include <array>
#include <utility>

#include "base/utf8.h"
#include "text/tokenizer/split_pattern.h"
#include "text/unicode.h"

namespace quire {
namespace {

using Class = CharClasses;

// A place in the text. Past the end no class bit is set.
struct Cursor {
  const CharClasses& classes;
  const char* end;

  std::uint8_t bits(const char* at) const { return at == end ? 0 : read(at); }
  // The class bits of the character at `at`, moved behind it.
  std::uint8_t read(const char*& at) const {
    return *at >= 0 ? classes.ascii(*at++) : classes[utf8_next(at)];
  }
  bool is(const char* at, char c) const { return at != end && *at == c; }
  bool is_newline(const char* at) const { return at != end && (*at == '\n' || *at == '\r'); }
  static const char* next(const char* at) { return at + utf8_length(*at); }

  // Behind the run of characters with one of these bits.
  const char* run(const char* at, std::uint8_t wanted) const {
    while (at != end) {
      const char* next = at;
      if ((read(next) & wanted) == 0) break;
      at = next;
    }
    return at;
  }
  // Behind the run of characters with none of these bits.
  const char* run_without(const char* at, std::uint8_t unwanted) const {
    while (at != end) {
      const char* next = at;
      if ((read(next) & unwanted) != 0) break;
      at = next;
    }
    return at;
  }
  const char* newlines(const char* at, char also = '\n') const {
    while (at != end && (*at == '\n' || *at == '\r' || *at == also)) ++at;
    return at;
  }
};

bool same_letter(char c, char lower) { return (c | 0x20) == lower; }

// Behind 's 't 're 've 'm 'll 'd at `at`; `at` if there is none. Without case, s is also U+017F.
template <bool ignore_case>
const char* contraction(const Cursor& in, const char* at) {
  if (!in.is(at, '\'')) return at;
  const auto letter = [&](int i, char lower) {
    return at + i < in.end && (ignore_case ? same_letter(at[i], lower) : at[i] == lower);
  };
  if (letter(1, 's') || letter(1, 't') || letter(1, 'm') || letter(1, 'd')) return at + 2;
  if (letter(1, 'r') && letter(2, 'e')) return at + 3;
  if (letter(1, 'v') && letter(2, 'e')) return at + 3;
  if (letter(1, 'l') && letter(2, 'l')) return at + 3;
  if (ignore_case && std::string_view(at, in.end).starts_with("'\xC5\xBF")) return at + 3;
  return at;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ at white space; without the first where `by_lines` is false.
template <bool by_lines>
const char* white_space(const Cursor& in, const char* at) {
  const char* behind_newline = nullptr;
  const char* last = at;
  const char* stop = at;
  while (stop != in.end) {
    const char* next = stop;
    if ((in.read(next) & Class::space) == 0) break;
    if (by_lines && in.is_newline(stop)) behind_newline = next;
    last = stop;
    stop = next;
  }
  if (behind_newline != nullptr) return behind_newline;
  // The last one goes with what follows.
  return stop == in.end || last == at ? stop : last;
}

// Up to `most` numbers.
const char* numbers(const Cursor& in, const char* at, int most) {
  while (most-- > 0 && (in.bits(at) & Class::number) != 0) at = Cursor::next(at);
  return at;
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
struct Gpt2Scanner {
  static const char* match(const Cursor& in, const char* at) {
    if (const char* end = contraction<false>(in, at); end != at) return end;
    const char* const word = in.is(at, ' ') ? at + 1 : at;
    constexpr std::uint8_t kNotOther = Class::space | Class::letter | Class::number;
    const std::uint8_t bits = in.bits(word);
    if ((bits & Class::letter) != 0) return in.run(word, Class::letter);
    if ((bits & Class::number) != 0) return in.run(word, Class::number);
    if ((bits & Class::space) == 0 && word != in.end) return in.run_without(word, kNotOther);
    return white_space<false>(in, at);
  }
};

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+   With `marks` \p{M} counts as a letter.
template <int most_numbers, bool marks>
struct Gpt4Scanner {
  static constexpr std::uint8_t kLetter = Class::letter | (marks ? Class::mark : 0);

  static const char* match(const Cursor& in, const char* at) {
    if (const char* end = contraction<true>(in, at); end != at) return end;
    const std::uint8_t bits = in.bits(at);
    if ((bits & kLetter) != 0) return in.run(at, kLetter);
    if ((bits & Class::number) != 0) return numbers(in, at, most_numbers);
    const char* const second = Cursor::next(at);
    if (!in.is_newline(at) && (in.bits(second) & kLetter) != 0) return in.run(second, kLetter);
    constexpr std::uint8_t kNotOther = Class::space | Class::number | kLetter;
    const char* const other = *at == ' ' ? second : at;
    if (other != in.end && (in.bits(other) & kNotOther) == 0) {
      return in.newlines(in.run_without(other, kNotOther));
    }
    return white_space<true>(in, at);
  }
};

// [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|…)?|
// [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|…)?|
// \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <int most_numbers, bool contractions>
struct CamelCaseScanner {
  // [upper]*[lower]+ at `at`, with what is both given back as late as can be; `at`: no match.
  static const char* capitalized(const Cursor& in, const char* at) {
    const char* behind_lower = at;
    const char* stop = at;
    while (stop != in.end) {
      const char* next = stop;
      const std::uint8_t bits = in.read(next);
      if ((bits & Class::upper_like) == 0) break;
      if ((bits & Class::lower_like) != 0) behind_lower = next;
      stop = next;
    }
    const char* const end = in.run(stop, Class::lower_like);
    return end != stop ? end : behind_lower;
  }

  static const char* word(const Cursor& in, const char* at) {
    const std::uint8_t bits = in.bits(at);
    const bool may_lead = !in.is_newline(at) && (bits & (Class::letter | Class::number)) == 0;
    const char* const second = may_lead ? Cursor::next(at) : at;
    if (const char* end = capitalized(in, second); end != second) return end;
    if (may_lead) {
      if (const char* end = capitalized(in, at); end != at) return end;
    }
    if (const char* end = in.run(second, Class::upper_like); end != second) return end;
    return at;
  }

  static const char* match(const Cursor& in, const char* at) {
    if (const char* end = word(in, at); end != at) {
      return contractions ? contraction<true>(in, end) : end;
    }
    if ((in.bits(at) & Class::number) != 0) return numbers(in, at, most_numbers);
    constexpr std::uint8_t kNotOther = Class::space | Class::letter | Class::number;
    const char* const other = *at == ' ' ? at + 1 : at;
    if (other != in.end && (in.bits(other) & kNotOther) == 0) {
      return in.newlines(in.run_without(other, kNotOther), '/');
    }
    return white_space<true>(in, at);
  }
};

// [!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|
// \s+(?!\S)|\s+   where the first class is ASCII punctuation. Some characters match nothing.
struct DeepSeekScanner {
  static bool is_ascii_letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

  static const char* match(const Cursor& in, const char* at) {
    constexpr std::uint8_t kWord = Class::letter | Class::mark;
    constexpr std::uint8_t kSign = Class::punctuation | Class::symbol;
    const std::uint8_t bits = in.bits(at);
    const char* const second = Cursor::next(at);
    if ((bits & kSign) != 0 && second == at + 1 && second != in.end && is_ascii_letter(*second)) {
      const char* end = second;
      while (end != in.end && is_ascii_letter(*end)) ++end;
      return end;
    }
    if ((bits & kWord) != 0) return in.run(at, kWord);
    if (!in.is_newline(at) && (bits & kSign) == 0 && (in.bits(second) & kWord) != 0) {
      return in.run(second, kWord);
    }
    const char* const sign = *at == ' ' ? second : at;
    if ((in.bits(sign) & kSign) != 0) return in.newlines(in.run(sign, kSign));
    return (bits & Class::space) != 0 ? white_space<true>(in, at) : at;
  }
};

// \p{N}{1,3}
struct NumberScanner {
  static const char* match(const Cursor& in, const char* at) { return numbers(in, at, 3); }
};

// [一-龥぀-ゟ゠-ヿ]+
struct HanKanaScanner {
  static const char* match(const Cursor& in, const char* at) {
    while (at != in.end) {
      const char* next = at;
      const char32_t c = utf8_next(next);
      if (!((c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF))) break;
      at = next;
    }
    return at;
  }
};

template <class Scanner>
class ScannerPattern final : public SplitPattern {
 public:
  void find(std::string_view text, std::vector<Span>& spans) const override {
    spans.clear();
    scan(text, [&](std::uint32_t begin, std::uint32_t end, bool is_match) {
      spans.push_back({begin, end, is_match});
    });
  }

  void cut(std::string_view text, std::uint32_t offset, std::vector<Piece>& pieces) const override {
    scan(text, [&](std::uint32_t begin, std::uint32_t end, bool) {
      pieces.push_back({offset + begin, offset + end});
    });
  }

 private:
  template <class Give>
  static void scan(std::string_view text, Give&& give) {
    const char* const begin = text.data();
    const Cursor in{CharClasses::get(), begin + text.size()};
    const auto offset = [begin](const char* at) { return static_cast<std::uint32_t>(at - begin); };
    const char* unmatched = begin;  // where the part that no match has covered begins
    for (const char* at = begin; at != in.end;) {
      const char* const end = Scanner::match(in, at);
      if (end == at) {
        at = Cursor::next(at);
        continue;
      }
      if (unmatched != at) give(offset(unmatched), offset(at), false);
      give(offset(at), offset(end), true);
      at = unmatched = end;
    }
    if (unmatched != in.end) give(offset(unmatched), offset(in.end), false);
  }
};

using Factory = std::unique_ptr<SplitPattern> (*)();

template <class Scanner>
std::unique_ptr<SplitPattern> make() {
  CharClasses::get();  // computed while loading, not in the first request
  return std::make_unique<ScannerPattern<Scanner>>();
}

struct Known {
  std::string_view expression;
  Factory factory;
};

// Adjacent literals: R"(…)" for each alternative or two.
const Known kKnown[] = {
    {kByteLevelExpression, make<Gpt2Scanner>},
    // Llama 3
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     make<Gpt4Scanner<3, false>>},
    // Qwen 2 and 3
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     make<Gpt4Scanner<1, false>>},
    // Qwen 3.5
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
     R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     make<Gpt4Scanner<1, true>>},
    // GPT-OSS
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     make<CamelCaseScanner<3, true>>},
    // Tekken
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
     R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     make<CamelCaseScanner<1, false>>},
    // DeepSeek V3, in three steps
    {R"(\p{N}{1,3})", make<NumberScanner>},
    {"[一-龥\u3040-ゟ゠-ヿ]+", make<HanKanaScanner>},
    {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
     "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     make<DeepSeekScanner>},
};

}  // namespace

std::unique_ptr<SplitPattern> find_scanner(std::string_view expression) {
  for (const Known& known : kKnown) {
    if (known.expression == expression) return known.factory();
  }
  return nullptr;
}

}  // namespace quire
