#pragma once
// Markers in a text that comes byte by byte; at most one marker's length is held back.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

constexpr bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

inline std::string_view without_space(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// Anywhere in a text.
class MarkerFinder {
 public:
  MarkerFinder() = default;
  explicit MarkerFinder(std::vector<std::string> markers) : markers_(std::move(markers)) {}

  // The number of the marker that this byte completes, else -1. What is certain to be text is added
  // to `text`.
  int push(char c, std::string& text) {
    held_ += c;
    while (!held_.empty()) {
      bool may_come = false;
      for (std::size_t i = 0; i < markers_.size(); ++i) {
        if (!markers_[i].starts_with(held_)) continue;
        if (markers_[i].size() == held_.size()) {
          held_.clear();
          return static_cast<int>(i);
        }
        may_come = true;
      }
      if (may_come) return -1;
      text += held_.front();
      held_.erase(0, 1);
    }
    return -1;
  }

  const std::string& held() const { return held_; }
  std::string take_held() { return std::exchange(held_, {}); }
  const std::string& marker(int number) const { return markers_[std::size_t(number)]; }

 private:
  std::vector<std::string> markers_;
  std::string held_;
};

}  // namespace quire
