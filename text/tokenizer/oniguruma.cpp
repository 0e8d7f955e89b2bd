#include "text/tokenizer/oniguruma.h"

#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "base/error.h"

namespace quire {
namespace {

// Inside of a class. PCRE2's own \s has U+180E as well.
constexpr std::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
// For Oniguruma these are word characters too, but only for \w outside of a class.
constexpr std::string_view kOddWord = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kHex = "0-9A-Fa-f";
constexpr int kMaxClassDepth = 20;

constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kLongNames{{
    {"Letter", "L"},
    {"Lowercase_Letter", "Ll"},
    {"Uppercase_Letter", "Lu"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Punctuation", "P"},
    {"Symbol", "S"},
    {"Separator", "Z"},
}};

class Translator {
 public:
  explicit Translator(std::string_view expression) : in_(expression) {}

  std::string run() {
    while (at_ < in_.size()) {
      if (in_[at_] == '{') {
        interval();
        continue;
      }
      const std::size_t begin = out_.size();
      atom_ = begin;
      if (in_[at_] == '\\') {
        escape(/*in_class=*/false);
      } else if (in_[at_] == '[') {
        char_class();
      } else if (in_[at_] == '(') {
        group();
        groups_.push_back(begin);
      } else {
        if (in_[at_] == ')' && !groups_.empty()) {
          atom_ = groups_.back();
          groups_.pop_back();
        }
        out_ += in_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] static void unsupported(std::string_view what) {
    throw Failure(ErrorCode::unsupported, fmt::format("the expression has {}", what));
  }

  void put_class(std::string_view content, bool negated, bool in_class) {
    out_ += in_class ? "" : negated ? "[^" : "[";
    out_ += content;
    out_ += in_class ? "" : "]";
  }

  void escape(bool in_class) {
    const char kind = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    at_ += 2;
    switch (kind) {
      case 's':
        return put_class(kSpace, false, in_class);
      case 'S':
        return in_class ? put_class(kNotSpace, false, true) : put_class(kSpace, true, false);
      case 'h':
        return put_class(kHex, false, in_class);
      case 'w':
        if (in_class) return put_class(kWord, false, true);
        return put_class(fmt::format("{}{}", kWord, kOddWord), false, false);
      case 'H':
      case 'W':
        return put_class(kind == 'H' ? kHex : kWord, true, false);
      case 'b':
      case 'B':
        if (in_class) break;
        return word_boundary(kind == 'b');
      case 'u':
        if (at_ + 4 > in_.size()) unsupported("an incomplete \\u");
        out_ += fmt::format("\\x{{{}}}", in_.substr(at_, 4));
        at_ += 4;
        return;
      case 'p':
      case 'P':
        return property(kind);
      default:
        break;
    }
    out_ += in_.substr(at_ - 2, 2);
  }

  // PCRE2's own takes marks for what belongs to no word.
  void word_boundary(bool is_one) {
    constexpr std::string_view kFormat = "(?:(?<=[{0}])(?{1}[{0}])|(?<![{0}])(?{2}[{0}]))";
    const std::string word = fmt::format("{}{}", kWord, kOddWord);
    out_ += fmt::format(kFormat, word, is_one ? '!' : '=', is_one ? '=' : '!');
  }

  void property(char kind) {
    out_ += '\\';
    out_ += kind;
    const std::size_t close = in_.find('}', at_);
    if (at_ >= in_.size() || in_[at_] != '{' || close == in_.npos) return;
    std::string_view name = in_.substr(at_ + 1, close - at_ - 1);
    out_ += '{';
    if (name.starts_with('^')) {
      out_ += '^';
      name.remove_prefix(1);
    }
    for (const auto& [long_name, short_name] : kLongNames) {
      if (name == long_name) name = short_name;
    }
    out_.append(name).append("}");
    at_ = close + 1;
  }

  // A set of characters: what PCRE2 can write in one pair of brackets, and expressions that each
  // match one character.
  struct CharSet {
    std::string plain;
    std::vector<std::string> others;

    bool is_plain() const { return others.empty(); }
    std::string expression(bool negated) const {
      if (is_plain() && plain.empty()) return negated ? "(?s:.)" : "(?!)";
      if (is_plain()) return (negated ? "[^" : "[") + plain + "]";
      std::string all = plain.empty() ? "" : "[" + plain + "]";
      for (const std::string& other : others) all += (all.empty() ? "" : "|") + other;
      return negated ? "(?:(?!" + all + ")(?s:.))" : "(?:" + all + ")";
    }
  };

  void char_class() {
    bool negated = false;
    const CharSet set = nested_class(negated, 0);
    out_ += set.expression(negated);
  }

  // Of Oniguruma's classes in classes: [a[b]] is a union, [ab&&[^b]] an intersection, which binds
  // less. PCRE2 has neither.
  CharSet nested_class(bool& negated, int depth) {
    if (depth > kMaxClassDepth) unsupported("classes within classes too deep");
    ++at_;
    negated = at_ < in_.size() && in_[at_] == '^';
    if (negated) ++at_;
    CharSet set;
    std::string intersection;  // of the sets before
    const std::size_t begin = at_;
    while (at_ < in_.size() && (in_[at_] != ']' || at_ == begin)) {
      const std::string_view rest = in_.substr(at_);
      if (rest[0] == '[' && !rest.starts_with("[:")) {
        bool inner_negated = false;
        const CharSet inner = nested_class(inner_negated, depth + 1);
        if (inner.is_plain() && !inner_negated) {
          set.plain += inner.plain;
        } else {
          set.others.push_back(inner.expression(inner_negated));
        }
      } else if (rest.starts_with("&&")) {
        at_ += 2;
        intersection += "(?=" + std::exchange(set, {}).expression(false) + ")";
      } else {
        class_item(set, at_ == begin);
      }
    }
    if (at_ == in_.size()) unsupported("a class that does not end");
    ++at_;
    if (intersection.empty()) return set;
    return {"", {"(?:" + intersection + set.expression(false) + ")"}};
  }

  void class_item(CharSet& set, bool is_first) {
    const std::string_view rest = in_.substr(at_);
    if (rest.starts_with("\\W") || rest.starts_with("\\H")) {
      at_ += 2;
      set.others.push_back(fmt::format("[^{}]", rest[1] == 'W' ? kWord : kHex));
      return;
    }
    std::swap(out_, set.plain);
    if (rest[0] == '\\') {
      escape(/*in_class=*/true);
    } else if (rest.starts_with("[:")) {
      posix_class();
    } else {
      // At an edge they stand for themselves, which must stay so beside others.
      const bool literal =
          rest[0] == ']' || (rest[0] == '-' && (is_first || rest.substr(1, 1) == "]"));
      if (literal) out_ += '\\';
      out_ += in_[at_++];
    }
    std::swap(out_, set.plain);
  }

  void posix_class() {
    const std::size_t close = in_.find(":]", at_);
    if (close == in_.npos) unsupported("an open [: in a class");
    const std::string_view whole = in_.substr(at_, close + 2 - at_);
    out_ += whole == "[:space:]"   ? kSpace
            : whole == "[:word:]"  ? kWord
            : whole == "[:punct:]" ? R"(\p{P}\p{S})"
            : whole == "[:alpha:]" ? R"(\p{Alphabetic})"
                                   : whole;
    at_ = close + 2;
  }

  // In (?m) of Ruby the dot matches newlines: (?s) elsewhere.
  void group() {
    out_ += in_[at_++];
    if (at_ >= in_.size() || in_[at_] != '?') return;
    out_ += in_[at_++];
    std::size_t flags = at_;
    while (flags < in_.size() &&
           (in_[flags] == 'i' || in_[flags] == 'm' || in_[flags] == 'x' || in_[flags] == '-')) {
      ++flags;
    }
    if (flags >= in_.size() || (in_[flags] != ':' && in_[flags] != ')')) return;
    for (; at_ < flags; ++at_) out_ += in_[at_] == 'm' ? 's' : in_[at_];
  }

  // A plus behind {n,m} repeats it in Ruby's syntax; in PCRE2 it makes it possessive.
  void interval() {
    std::size_t end = at_ + 1;
    while (end < in_.size() && ((in_[end] >= '0' && in_[end] <= '9') || in_[end] == ',')) ++end;
    const bool is_interval = end > at_ + 1 && end < in_.size() && in_[end] == '}';
    if (!is_interval) {
      out_ += in_[at_++];
      return;
    }
    const std::string_view interval = in_.substr(at_, end + 1 - at_);
    out_ += interval.starts_with("{,") ? fmt::format("{{0{}", interval.substr(1)) : interval;
    at_ = end + 1;
    if (at_ < in_.size() && in_[at_] == '+') {
      out_.insert(atom_, "(?:");
      out_ += ")+";
      ++at_;
    }
  }

  std::string_view in_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = 0;             // where in out_ that begins which a quantifier repeats
  std::vector<std::size_t> groups_;  // where in out_ the open groups begin
};

}  // namespace

std::string pcre_from_oniguruma(std::string_view expression) {
  return Translator(expression).run();
}

}  // namespace quire
