#include "engine/structured/regex/char_set.h"

#include <algorithm>
#include <cstdio>

namespace quire::structured {
namespace {

RegexId byte_range(RegexStore& store, unsigned first, unsigned last) {
  return store.bytes(
      ByteSet::range(static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last)));
}

// UTF-8 of [first, last], both of `length` bytes: split where a trailing byte is not free.
void utf8_range(RegexStore& store, char32_t first, char32_t last, int length,
                std::vector<RegexId>& out) {
  const auto build = [&](const auto& self, char32_t a, char32_t b, int left,
                         unsigned mark) -> RegexId {
    const unsigned top_a = a >> 6 * left, top_b = b >> 6 * left;
    if (left == 0) return byte_range(store, mark | top_a, mark | top_b);
    const char32_t mask = (char32_t{1} << 6 * left) - 1;
    if (top_a == top_b) {
      return store.concat(byte_range(store, mark | top_a, mark | top_a),
                          self(self, a & mask, b & mask, left - 1, 0x80));
    }
    std::vector<RegexId> parts;
    unsigned from = top_a, to = top_b;
    if ((a & mask) != 0) {
      parts.push_back(store.concat(byte_range(store, mark | top_a, mark | top_a),
                                   self(self, a & mask, mask, left - 1, 0x80)));
      ++from;
    }
    if ((b & mask) != mask) {
      parts.push_back(store.concat(byte_range(store, mark | top_b, mark | top_b),
                                   self(self, 0, b & mask, left - 1, 0x80)));
      --to;
    }
    if (from <= to) {
      parts.push_back(store.concat(byte_range(store, mark | from, mark | to),
                                   self(self, 0, mask, left - 1, 0x80)));
    }
    return store.any_of(std::move(parts));
  };
  constexpr unsigned kMarks[] = {0, 0, 0xc0, 0xe0, 0xf0};
  out.push_back(build(build, first, last, length - 1, kMarks[length]));
}

RegexId utf8_regex(RegexStore& store, const CharSet& set) {
  std::vector<RegexId> parts;
  constexpr char32_t kLimits[] = {0x7f, 0x7ff, 0xffff, CharSet::kLast};
  for (auto [first, last] : set.ranges()) {
    for (int length = 1; length <= 4; ++length) {
      const char32_t limit = kLimits[length - 1];
      if (first > limit || first > last) continue;
      utf8_range(store, first, std::min(last, limit), length, parts);
      first = limit + 1;
    }
  }
  return store.any_of(std::move(parts));
}

constexpr std::pair<char32_t, char> kShortEscapes[] = {
    {'"', '"'}, {'\\', '\\'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}, {'\b', 'b'}, {'\f', 'f'}};

RegexId hex_digits(RegexStore& store) {
  ByteSet digits = ByteSet::range('0', '9');
  digits |= ByteSet::range('a', 'f');
  digits |= ByteSet::range('A', 'F');
  return store.bytes(digits);
}

// u00XX of one control, its digits in either case.
RegexId control_escape(RegexStore& store, char32_t c) {
  char text[8];
  std::snprintf(text, sizeof text, "u00%02x", static_cast<unsigned>(c));
  RegexId id = kEmpty;
  for (const char digit : std::string_view(text)) {
    ByteSet set = ByteSet::of(static_cast<std::uint8_t>(digit));
    if (digit >= 'a' && digit <= 'f') set.add(static_cast<std::uint8_t>(digit - 32));
    id = store.concat(id, store.bytes(set));
  }
  return id;
}

// What may follow a backslash for any character at all.
RegexId loose_escapes(RegexStore& store) {
  const auto hex = [&](std::string_view digits) {
    ByteSet set;
    for (const char c : digits) {
      set.add(static_cast<std::uint8_t>(c));
      if (c >= 'a') set.add(static_cast<std::uint8_t>(c - 32));
    }
    return store.bytes(set);
  };
  const RegexId any = hex_digits(store);
  const RegexId plane = store.concat({hex("0123456789abcef"), any, any, any});
  const RegexId below_surrogates = store.concat({hex("d"), hex("01234567"), any, any});
  const RegexId pair = store.concat(
      {hex("d"), hex("89ab"), any, any, store.literal("\\u"), hex("d"), hex("cdef"), any, any});
  ByteSet shorts;
  for (const char c : std::string_view("\"\\/bfnrt")) shorts.add(static_cast<std::uint8_t>(c));
  return store.any_of(
      {store.bytes(shorts),
       store.concat(store.literal("u"), store.any_of({plane, below_surrogates, pair}))});
}

}  // namespace

CharSet CharSet::all() {
  CharSet set;
  set.ranges_ = {{0, 0xd7ff}, {0xe000, kLast}};
  return set;
}

CharSet CharSet::of(char32_t first, char32_t last) {
  CharSet set;
  set.add(first, last);
  return set;
}

void CharSet::add(char32_t first, char32_t last) {
  if (first <= 0xdfff && last >= 0xd800) {  // surrogates are no characters
    if (first < 0xd800) add(first, 0xd7ff);
    if (last > 0xdfff) add(0xe000, last);
    return;
  }
  const bool is_behind = ranges_.empty() || first > ranges_.back().second + 1;
  ranges_.emplace_back(first, last);
  if (!is_behind) merge();
}

void CharSet::merge() {
  std::sort(ranges_.begin(), ranges_.end());
  std::vector<std::pair<char32_t, char32_t>> merged;
  for (const auto& range : ranges_) {
    if (!merged.empty() && range.first <= merged.back().second + 1) {
      merged.back().second = std::max(merged.back().second, range.second);
    } else {
      merged.push_back(range);
    }
  }
  ranges_ = std::move(merged);
}

void CharSet::add(const CharSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  merge();
}

CharSet CharSet::complement() const {
  CharSet result;
  char32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) result.add(next, first - 1);
    next = last + 1;
  }
  if (next <= kLast) result.add(next, kLast);
  return result;
}

CharSet CharSet::intersected(const CharSet& other) const {
  CharSet united = complement();
  united.add(other.complement());
  return united.complement();
}

void CharSet::fold_ascii_case() {
  for (char32_t c = 'a'; c <= 'z'; ++c) {
    if (has(c) || has(c - 32)) {
      add(c, c);
      add(c - 32, c - 32);
    }
  }
}

bool CharSet::has(char32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [c](const auto& range) { return range.first <= c && c <= range.second; });
}

RegexId chars_regex(RegexStore& store, const CharSet& set, Spelling spelling) {
  if (spelling == Spelling::plain) return utf8_regex(store, set);
  CharSet escaped = CharSet::of(0, 0x1f);
  escaped.add('"', '"');
  escaped.add('\\', '\\');
  std::vector<RegexId> parts{utf8_regex(store, set.intersected(escaped.complement()))};
  std::vector<RegexId> escapes;
  if (spelling == Spelling::json_loose) {
    escapes.push_back(loose_escapes(store));
  } else {
    for (const auto& [c, letter] : kShortEscapes) {
      if (set.has(c)) escapes.push_back(store.literal(std::string_view(&letter, 1)));
    }
    for (char32_t c = 0; c < 0x20; ++c) {
      if (set.has(c)) escapes.push_back(control_escape(store, c));
    }
  }
  parts.push_back(store.concat(store.literal("\\"), store.any_of(std::move(escapes))));
  return store.any_of(std::move(parts));
}

std::string json_escaped(std::string_view utf8) {
  std::string out;
  for (const char byte : utf8) {
    const auto c = static_cast<unsigned char>(byte);
    const auto* escape = std::find_if(std::begin(kShortEscapes), std::end(kShortEscapes),
                                      [c](const auto& pair) { return pair.first == c; });
    if (escape != std::end(kShortEscapes)) {
      out += '\\';
      out += escape->second;
    } else if (c < 0x20) {
      char text[8];
      std::snprintf(text, sizeof text, "\\u%04x", c);
      out += text;
    } else {
      out += byte;
    }
  }
  return out;
}

RegexId json_spellings(RegexStore& store, std::string_view utf8) {
  RegexId id = kEmpty;
  std::vector<CharSet> chars;
  for (std::size_t at = 0; at < utf8.size();) {
    const char32_t c = next_char(utf8, at);
    chars.push_back(CharSet::of(c, c));
  }
  for (auto it = chars.rbegin(); it != chars.rend(); ++it) {
    id = store.concat(chars_regex(store, *it, Spelling::json), id);
  }
  return id;
}

char32_t next_char(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned head = byte(at);
  const std::size_t length = head < 0x80 ? 1 : head >= 0xf0 ? 4 : head >= 0xe0 ? 3 : 2;
  bool good = head < 0x80 || (head >= 0xc2 && head <= 0xf4);
  good = good && at + length <= text.size();
  char32_t c = length == 1 ? head : head & (0x7f >> length);
  for (std::size_t i = 1; good && i < length; ++i) {
    good = (byte(at + i) & 0xc0) == 0x80;
    c = c << 6 | (byte(at + i) & 0x3f);
  }
  if (!good) throw GrammarFailure(GrammarErrorKind::syntax, "the text is not UTF-8");
  at += length;
  return c;
}

}  // namespace quire::structured
