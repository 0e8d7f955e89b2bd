// Crochemore and Perrin, "Two-way string-matching" (1991).

#include "jinja/values/search.h"

#include <algorithm>
#include <functional>

namespace quire::jinja {
namespace {

constexpr std::size_t kShort = 16;  // the plain search compares so many bytes at each place at most

struct Suffix {
  std::size_t begin;
  std::size_t period;
};

// The suffix that is greatest by `before`, and its period.
template <class Before>
Suffix greatest_suffix(std::string_view text, Before before) {
  std::size_t begin = 0, candidate = 1, matched = 0, period = 1;
  while (candidate + matched < text.size()) {
    const auto a = static_cast<unsigned char>(text[candidate + matched]);
    const auto b = static_cast<unsigned char>(text[begin + matched]);
    if (before(a, b)) {
      candidate += matched + 1;
      matched = 0;
      period = candidate - begin;
    } else if (a != b) {
      begin = candidate++;
      matched = 0;
      period = 1;
    } else if (++matched == period) {
      candidate += period;
      matched = 0;
    }
  }
  return {begin, period};
}

std::string reversed(std::string_view text) { return {text.rbegin(), text.rend()}; }

}  // namespace

TextSearch::TextSearch(std::string_view part) : part_(part) {
  if (part.size() <= kShort) return;
  const Suffix up = greatest_suffix(part, std::less<>());
  const Suffix down = greatest_suffix(part, std::greater<>());
  const Suffix& later = up.begin > down.begin ? up : down;
  cut_ = later.begin;
  period_ = later.period;
  repeats_ = cut_ + period_ <= part.size() && part.substr(0, cut_) == part.substr(period_, cut_);
  if (!repeats_) period_ = std::max(cut_, part.size() - cut_) + 1;
}

std::size_t TextSearch::find(std::string_view text, std::size_t from) const {
  if (from > text.size()) return npos;
  if (part_.size() <= kShort) return text.find(part_, from);
  const std::size_t at = find_two_way(text.substr(from));
  return at == npos ? npos : from + at;
}

std::size_t TextSearch::find_two_way(std::string_view text) const {
  std::size_t known = 0;  // bytes at the front that are known to match
  for (std::size_t at = 0; at + part_.size() <= text.size();) {
    std::size_t right = std::max(cut_, known);
    while (right < part_.size() && part_[right] == text[at + right]) ++right;
    if (right < part_.size()) {
      at += right - cut_ + 1;
      known = 0;
      continue;
    }
    std::size_t left = cut_;
    while (left > known && part_[left - 1] == text[at + left - 1]) --left;
    if (left <= known) return at;
    at += period_;
    known = repeats_ ? part_.size() - period_ : 0;
  }
  return npos;
}

ReverseSearch::ReverseSearch(std::string_view text, std::string_view part)
    : text_(reversed(text)), part_(reversed(part)), search_(part_) {}

std::size_t ReverseSearch::find(std::size_t end) const {
  const std::size_t at = search_.find(text_, text_.size() - end);
  return at == TextSearch::npos ? at : text_.size() - at - part_.size();
}

}  // namespace quire::jinja
