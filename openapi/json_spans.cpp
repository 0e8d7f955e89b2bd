#include "openapi/json_spans.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/decimal.h"
#include "base/error.h"
#include "base/json.h"

namespace quire::openapi {

namespace {

constexpr std::string_view kNumberCharacters = "+-.0123456789eE";
constexpr std::string_view kSpace = " \t\r\n";
constexpr std::size_t kMaxDepth = 1024;

// One array or object that is open at a place.
struct Level {
  bool is_array = false;
  std::size_t index = 0;    // in an array
  std::string_view member;  // in an object, as it is spelled
};

// Of its closing quote.
std::size_t end_of_string(std::string_view json, std::size_t start) {
  for (std::size_t i = start + 1; i < json.size(); ++i) {
    if (json[i] == '\\') {
      ++i;
    } else if (json[i] == '"') {
      return i;
    }
  }
  return json.size();
}

bool is_fraction(std::string_view number) { return number.find_first_of(".eE") != std::string_view::npos; }

bool is_unfit(std::string_view number) {
  const char* end = number.data() + number.size();
  if (is_fraction(number)) {
    double real = 0;
    return std::from_chars(number.data(), end, real).ec == std::errc::result_out_of_range;
  }
  std::int64_t integer = 0;
  std::uint64_t natural = 0;
  return std::from_chars(number.data(), end, integer).ec == std::errc::result_out_of_range &&
         std::from_chars(number.data(), end, natural).ec != std::errc{};
}

bool is_lossy(std::string_view number) { return is_fraction(number) && !exact_double(number); }

NumberSpan span_of(std::size_t begin, std::size_t end, const std::vector<Level>& levels) {
  NumberSpan span{begin, end, {}, {}};
  for (const Level& level : levels) {
    if (level.is_array) {
      span.path += '[' + std::to_string(level.index) + ']';
      span.pointer += '/' + std::to_string(level.index);
      continue;
    }
    if (!span.path.empty()) span.path += '.';
    span.path += level.member;
    span.pointer += '/';
    for (const char c : level.member) {
      span.pointer += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    }
  }
  return span;
}

std::vector<NumberSpan> numbers(std::string_view json, std::size_t most, bool (*wanted)(std::string_view)) {
  std::vector<NumberSpan> found;
  std::vector<Level> levels;
  for (std::size_t i = 0; i < json.size() && found.size() < most; ++i) {
    const char c = json[i];
    if (c == '{' || c == '[') {
      if (levels.size() == kMaxDepth) return found;
      levels.push_back({c == '[', 0, {}});
    } else if (c == '}' || c == ']') {
      if (levels.empty()) return found;
      levels.pop_back();
    } else if (c == ',' && !levels.empty()) {
      ++levels.back().index;
      levels.back().member = {};
    } else if (c == '"') {
      const std::size_t end = end_of_string(json, i);
      if (!levels.empty() && levels.back().member.empty()) {
        levels.back().member = json.substr(i + 1, end - i - 1);
      }
      i = end;
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      const auto end = std::min(json.find_first_not_of(kNumberCharacters, i), json.size());
      if (wanted(json.substr(i, end - i))) found.push_back(span_of(i, end, levels));
      i = end - 1;
    }
  }
  return found;
}

// Behind the value that begins at `at`.
std::size_t end_of_value(std::string_view json, std::size_t at) {
  std::size_t depth = 0;
  for (; at < json.size(); ++at) {
    const char c = json[at];
    if (c == '"') {
      at = end_of_string(json, at);
    } else if (c == '{' || c == '[') {
      ++depth;
      continue;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (kSpace.find(c) == kSpace.npos && depth == 0) {
      return std::min(json.find_first_of(",]} \t\r\n", at), json.size());
    } else {
      continue;
    }
    if (depth == 0) return std::min(at + 1, json.size());
  }
  return json.size();
}

bool is_name(std::string_view spelled, std::string_view name) {
  if (spelled.find('\\') == spelled.npos) return spelled == name;
  try {
    return JsonDocument('"' + std::string(spelled) + '"', {}).root().as_string() == name;
  } catch (const Failure&) {
    return false;
  }
}

// The member or item of that name, within the array or object; empty: there is none.
std::string_view child(std::string_view json, std::string_view token) {
  const bool is_object = json.starts_with('{');
  if (!is_object && !json.starts_with('[')) return {};
  std::size_t index = 0;
  for (std::size_t at = 1;; ++index) {
    at = json.find_first_not_of(" \t\r\n,:", at);
    if (at >= json.size() || json[at] == '}' || json[at] == ']') return {};
    bool is_wanted = !is_object && std::to_string(index) == token;
    if (is_object) {
      const std::size_t end = end_of_string(json, at);
      is_wanted = is_name(json.substr(at + 1, end - at - 1), token);
      at = json.find_first_not_of(" \t\r\n:", end + 1);
      if (at >= json.size()) return {};
    }
    const std::size_t end = end_of_value(json, at);
    if (is_wanted) return json.substr(at, end - at);
    at = end;
  }
}

std::string unescaped(std::string_view token) {
  std::string name;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const bool escapes = token[i] == '~' && i + 1 < token.size();
    name += escapes ? (token[++i] == '0' ? '~' : '/') : token[i];
  }
  return name;
}

}  // namespace

std::vector<NumberSpan> unfit_numbers(std::string_view json, std::size_t most) {
  return numbers(json, most, is_unfit);
}

std::vector<NumberSpan> lossy_fractions(std::string_view json, std::size_t most) {
  return numbers(json, most, is_lossy);
}

std::string_view value_at(std::string_view json, std::string_view pointer) {
  const std::size_t begin = std::min(json.find_first_not_of(kSpace), json.size());
  std::string_view at = json.substr(begin, end_of_value(json, begin) - begin);
  while (!pointer.empty() && !at.empty()) {
    pointer.remove_prefix(1);
    const std::string_view token = pointer.substr(0, pointer.find('/'));
    pointer.remove_prefix(token.size());
    at = child(at, unescaped(token));
  }
  return at;
}

}  // namespace quire::openapi
