#include "jinja/values/brace_format.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/syntax/literals.h"
#include "jinja/values/attributes.h"
#include "jinja/values/format_spec.h"
#include "jinja/values/markup.h"
#include "jinja/values/operators.h"
#include "jinja/values/repr.h"

namespace quire::jinja {
namespace {

bool is_number_text(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

class BraceFormatter {
 public:
  BraceFormatter(Evaluation& evaluation, bool safe, const Arguments& arguments)
      : evaluation_(evaluation), safe_(safe), arguments_(arguments) {}

  // `depth`: specifications may hold fields themselves, once.
  std::string format(std::string_view text, int depth) {
    if (depth > 1) fail(ErrorKind::value, "Max string recursion exceeded");
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
      const char c = text[i++];
      if (c == '}' && (i == text.size() || text[i] != '}')) {
        fail(ErrorKind::value, "Single '}' encountered in format string");
      }
      if (c == '{' && i == text.size())
        fail(ErrorKind::value, "Single '{' encountered in format string");
      if ((c != '{' && c != '}') || text[i] == c) {
        out.push_back(c);
        i += c == '{' || c == '}';
        continue;
      }
      const std::size_t end = field_end(text, i);
      out += field(text.substr(i, end - i), depth);
      evaluation_.charge_text(out.size());
      i = end + 1;
    }
    return out;
  }

 private:
  static std::size_t field_end(std::string_view text, std::size_t begin) {
    int open = 1;
    for (std::size_t i = begin; i < text.size(); ++i) {
      open += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
      if (open == 0) return i;
    }
    fail(ErrorKind::value, "expected '}' before end of string");
  }

  std::string field(std::string_view text, int depth);
  Value lookup(std::string_view name);
  void check_numbering(std::string_view field_name);
  Value argument(std::string_view name, bool automatic);

  Evaluation& evaluation_;
  bool safe_;
  const Arguments& arguments_;
  // Next number of a field without one; -1 where fields are numbered by hand.
  std::int64_t automatic_ = 0;
};

// name!conversion:specification
std::string BraceFormatter::field(std::string_view text, int depth) {
  std::size_t name_end = 0;
  for (int brackets = 0; name_end < text.size(); ++name_end) {
    const char c = text[name_end];
    brackets += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (brackets <= 0 && (c == '!' || c == ':')) break;
    if (c == '{') fail(ErrorKind::value, "unexpected '{' in field name");
  }
  Value value = lookup(text.substr(0, name_end));
  std::string_view rest = text.substr(name_end);
  if (rest.starts_with('!')) {
    if (rest.size() < 2)
      fail(ErrorKind::value, "end of string while looking for conversion specifier");
    if (rest.size() > 2 && rest[2] != ':')
      fail(ErrorKind::value, "expected ':' after conversion specifier");
    if (rest[1] != 's' && rest[1] != 'r' && rest[1] != 'a') {
      fail(ErrorKind::value, std::string("Unknown conversion specifier '") + rest[1] + "'");
    }
    value = Value(rest[1] == 's' ? to_text(value) : repr(value));
    rest.remove_prefix(2);
  }
  const std::string spec_text = rest.empty() ? std::string() : format(rest.substr(1), depth + 1);
  if (value.is_undefined()) {
    if (!spec_text.empty()) {
      fail(ErrorKind::type, "unsupported format string passed to Undefined.__format__");
    }
    return "";
  }
  if (is_safe(value) && safe_) return value.string();
  std::string formatted = format_value(evaluation_, value, parse_format_spec(spec_text));
  return safe_ ? escape_html(formatted) : formatted;
}

// Fields are numbered either by hand or by their order, as far as they are nothing but a number.
void BraceFormatter::check_numbering(std::string_view field_name) {
  const bool automatic = field_name.empty();
  if (!automatic && !is_number_text(field_name)) return;
  if (automatic ? automatic_ < 0 : automatic_ > 0) {
    fail(ErrorKind::value,
         automatic ? "cannot switch from manual field specification to automatic field numbering"
                   : "cannot switch from automatic field numbering to manual field specification");
  }
  if (!automatic) automatic_ = -1;
}

Value BraceFormatter::argument(std::string_view name, bool automatic) {
  if (automatic || is_number_text(name)) {
    if (name.size() > 9) fail(ErrorKind::value, "Too many decimal digits in format string");
    const auto index = std::size_t(automatic ? automatic_++ : std::stoll(std::string(name)));
    if (index < arguments_.positional.size()) return arguments_.positional[index];
    fail(ErrorKind::lookup,
         "Replacement index " + std::to_string(index) + " out of range for positional args tuple");
  }
  for (const auto& [key, value] : arguments_.named) {
    if (key == name) return value;
  }
  fail(ErrorKind::lookup, repr(name));
}

// argument, then .attribute and [item] as often as they come
Value BraceFormatter::lookup(std::string_view name) {
  const std::size_t first_end = std::min(name.find_first_of(".["), name.size());
  check_numbering(name);
  Value value = argument(name.substr(0, first_end), name.empty());
  name.remove_prefix(first_end);
  while (!name.empty()) {
    if (name[0] == '.') {
      const std::size_t end = std::min(name.find_first_of(".[", 1), name.size());
      if (end == 1) fail(ErrorKind::value, "Empty attribute in format string");
      value = get_attribute(evaluation_, value, Value(name.substr(1, end - 1)));
      name.remove_prefix(end);
      continue;
    }
    if (name[0] != '[')
      fail(ErrorKind::value, "Only '.' or '[' may follow ']' in format field specifier");
    const std::size_t end = name.find(']');
    if (end == name.npos) fail(ErrorKind::value, "Missing ']' in format string");
    const std::string_view key = name.substr(1, end - 1);
    if (key.empty()) fail(ErrorKind::value, "Empty attribute in format string");
    const Value index = is_number_text(key) ? *parse_integer(key, 10) : Value(key);
    value = get_item(evaluation_, value, index);
    name.remove_prefix(end + 1);
  }
  return value;
}

}  // namespace

Value brace_format(Evaluation& evaluation, const Value& format, const Arguments& arguments) {
  const bool safe = format.text().safe;
  BraceFormatter formatter(evaluation, safe, arguments);
  return evaluation.text(formatter.format(format.string(), 0), safe);
}

}  // namespace quire::jinja
