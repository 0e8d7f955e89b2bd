#pragma once
// Parts of texts, found in time that grows with the text alone: both may be a client's.

#include <cstddef>
#include <string>
#include <string_view>

namespace quire::jinja {

// The part must outlive it. Preparing costs as much as one look at the part.
class TextSearch {
 public:
  static constexpr std::size_t npos = std::string_view::npos;

  explicit TextSearch(std::string_view part);
  // Where the part first occurs at or after `from`.
  std::size_t find(std::string_view text, std::size_t from = 0) const;
  std::size_t size() const { return part_.size(); }

 private:
  std::size_t find_two_way(std::string_view text) const;

  std::string_view part_;
  std::size_t cut_ = 0;     // the critical factorization: part_ = left of cut_, right of it
  std::size_t period_ = 1;  // of the part, or a lower bound of it where that is long
  bool repeats_ = false;    // the left side is the end of what the period repeats
};

// The same from the end; the texts are turned around once.
class ReverseSearch {
 public:
  ReverseSearch(std::string_view text, std::string_view part);
  ReverseSearch(const ReverseSearch&) = delete;
  // Where the part last stands so that it ends at or before `end`.
  std::size_t find(std::size_t end) const;

 private:
  std::string text_, part_;
  TextSearch search_;
};

inline std::size_t find_text(std::string_view text, std::string_view part) {
  return TextSearch(part).find(text);
}
inline std::size_t find_text_last(std::string_view text, std::string_view part) {
  return ReverseSearch(text, part).find(text.size());
}

}  // namespace quire::jinja
