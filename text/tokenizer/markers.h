#pragma once
// Markers in a text that arrives in pieces.

#include <algorithm>
#include <string_view>

namespace quire {

constexpr std::string_view kMarkerSpace = " \t\r\n";

// Where a piece of `marker` that may yet be completed begins; the text's size where there is none.
inline std::size_t partial_marker(std::string_view text, std::string_view marker) {
  for (std::size_t length = std::min(text.size(), marker.size() - 1); length > 0; --length) {
    if (text.ends_with(marker.substr(0, length))) return text.size() - length;
  }
  return text.size();
}

// The text's size without white space at its end.
inline std::size_t trimmed_size(std::string_view text) {
  const std::size_t last = text.find_last_not_of(kMarkerSpace);
  return last == text.npos ? 0 : last + 1;
}

inline std::size_t leading_space(std::string_view text) {
  return std::min(text.find_first_not_of(kMarkerSpace), text.size());
}

}  // namespace quire
