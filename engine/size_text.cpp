#include "engine/size_text.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "engine/config.h"

namespace quire {
namespace {

constexpr std::string_view kPrefixes = "kmgt";

Error bad(std::string_view text, std::string_view why) {
  return {ErrorCode::invalid_argument, fmt::format("\"{}\" {}", text.substr(0, 40), why), {}};
}

double power(double base, std::size_t exponent) {
  return std::pow(base, static_cast<double>(exponent));
}

// What the suffix multiplies by; 0: no such suffix.
double scale_of(std::string_view suffix, bool bytes) {
  if (suffix.empty() || (bytes && suffix == "B")) return 1;
  const auto lower = static_cast<char>(suffix[0] | 0x20);
  const auto prefix = kPrefixes.find(lower);
  if (prefix == std::string_view::npos) return 0;
  const std::string_view unit = suffix.substr(1);
  if (unit.empty()) return power(suffix[0] == lower ? 1000 : 1024, prefix + 1);
  if (!bytes || suffix[0] == lower) return 0;
  if (unit == "iB") return power(1024, prefix + 1);
  return unit == "B" ? power(1000, prefix + 1) : 0;
}

Result<std::int64_t> parse(std::string_view text, bool bytes) {
  const std::size_t digits = text.find_first_not_of("0123456789.");
  const std::string_view number = text.substr(0, digits);
  const std::string_view suffix = digits == std::string_view::npos ? "" : text.substr(digits);
  double value = 0;
  const auto [end, failure] = std::from_chars(number.data(), number.data() + number.size(), value);
  const double scale = scale_of(suffix, bytes);
  if (number.empty() || failure != std::errc() || end != number.data() + number.size() ||
      scale == 0)
    return bad(text, bytes ? "is not a size; use such as 80GiB, 80GB, 512MiB or a number of bytes"
                           : "is not a count; use such as 8192, 8k (8000) or 8K (8192)");
  const bool counts_in_binary = !bytes && !suffix.empty() && suffix[0] < 'a';
  if (counts_in_binary && number.find('.') != std::string_view::npos)
    return bad(text, "has a decimal point before a power of 1024; use the lower-case suffix");
  const double result = std::round(value * scale);
  if (result >= 9.2e18) return bad(text, "is too large");
  if (scale == 1 && result != value) return bad(text, "is not a whole number");
  return static_cast<std::int64_t>(result);
}

}  // namespace

Result<std::int64_t> parse_count(std::string_view text) { return parse(text, false); }

Result<std::int64_t> parse_bytes(std::string_view text) { return parse(text, true); }

Result<std::int64_t> parse_bytes_with_unit(std::string_view text) {
  if (!text.empty() && text.find_first_not_of("0123456789.") == std::string_view::npos)
    return bad(text, "has no unit; use such as 80GiB, 80GB or 512MiB");
  return parse_bytes(text);
}

Result<std::int64_t> parse_max_model_len(std::string_view text) {
  if (text == "auto" || text == "-1") return kAutoFit;
  const auto count = parse_count(text);
  if (count.has_value() && *count == 0) return bad(text, "is not a length; use -1 for auto-fit");
  return count;
}

std::string bytes_text(std::int64_t bytes) {
  static constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.4g} {}", value, kUnits[unit]);
}

}  // namespace quire
