#include "jinja/values/markup.h"

#include <array>
#include <utility>

#include "jinja/syntax/literals.h"
#include "jinja/values/repr.h"
#include "jinja/values/text_split.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {
namespace {

// Removes everything from `open` to `close`, as often as it occurs.
std::string without(std::string_view text, std::string_view open, std::string_view close) {
  std::string out;
  while (true) {
    const std::size_t begin = text.find(open);
    const std::size_t end = begin == text.npos ? text.npos : text.find(close, begin);
    if (end == text.npos) return out.append(text);
    out.append(text.substr(0, begin));
    text.remove_prefix(end + close.size());
  }
}

// &name; or &#number; to the character it means; empty where it is neither.
std::string entity(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kNamed = {
      {{"amp", "&"}, {"lt", "<"}, {"gt", ">"}, {"quot", "\""}, {"apos", "'"}, {"nbsp", "\u00a0"}}};
  for (const auto& [known, meaning] : kNamed) {
    if (known == name) return std::string(meaning);
  }
  if (!name.starts_with('#')) return "";
  const bool hex = name.size() > 1 && (name[1] == 'x' || name[1] == 'X');
  const auto number = parse_integer(name.substr(hex ? 2 : 1), hex ? 16 : 10);
  if (!number || !number->is(Value::Kind::integer)) return "";
  const std::int64_t c = number->integer();
  if (c <= 0 || c >= 0x110000 || (c >= 0xd800 && c < 0xe000)) return "\ufffd";
  std::string out;
  unicode::append(out, char32_t(c));
  return out;
}

std::string resolve_entities(std::string_view text) {
  constexpr std::size_t kLongest = 10;
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t end = text[i] == '&' ? text.substr(i, kLongest).find(';') : text.npos;
    const std::string meaning = end == text.npos ? "" : entity(text.substr(i + 1, end - 1));
    if (meaning.empty()) {
      out.push_back(text[i]);
    } else {
      out += meaning;
      i += end;
    }
  }
  return out;
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

Value escape(const Value& value) { return is_safe(value) ? value : forced_escape(value); }

Value forced_escape(const Value& value) { return Value(escape_html(to_text(value)), true); }

std::string strip_tags(std::string_view html) {
  const std::string bare = without(without(html, "<!--", "-->"), "<", ">");
  std::string out;
  for (std::string_view word : split_space(bare, -1)) {
    if (!out.empty()) out.push_back(' ');
    out += word;
  }
  return resolve_entities(out);
}

}  // namespace quire::jinja
