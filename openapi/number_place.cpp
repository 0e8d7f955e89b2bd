#include "openapi/number_place.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <vector>

namespace quire::openapi {

namespace {

constexpr std::string_view kNumberCharacters = "+-.0123456789eE";
constexpr std::size_t kMaxDepth = 64;

// One array or object that is open at a place.
struct Level {
  bool is_array = false;
  std::size_t index = 0;    // in an array
  std::string_view member;  // in an object, as it is spelled
};

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

bool is_unfit(std::string_view number) {
  const char* end = number.data() + number.size();
  if (number.find_first_of(".eE") != std::string_view::npos) {
    double real = 0;
    return std::from_chars(number.data(), end, real).ec == std::errc::result_out_of_range;
  }
  std::int64_t integer = 0;
  std::uint64_t natural = 0;
  return std::from_chars(number.data(), end, integer).ec == std::errc::result_out_of_range &&
         std::from_chars(number.data(), end, natural).ec != std::errc{};
}

std::string path_of(const std::vector<Level>& levels) {
  std::string path;
  for (const Level& level : levels) {
    if (level.is_array) {
      path += '[' + std::to_string(level.index) + ']';
    } else {
      if (!path.empty()) path += '.';
      path += level.member;
    }
  }
  return path;
}

}  // namespace

std::optional<std::string> place_of_unfit_number(std::string_view json) {
  std::vector<Level> levels;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '{' || c == '[') {
      if (levels.size() == kMaxDepth) return std::nullopt;
      levels.push_back({c == '[', 0, {}});
    } else if (c == '}' || c == ']') {
      if (levels.empty()) return std::nullopt;
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
      if (is_unfit(json.substr(i, end - i))) return path_of(levels);
      i = end - 1;
    }
  }
  return std::nullopt;
}

}  // namespace quire::openapi
