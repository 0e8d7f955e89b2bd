#pragma once
// Text without the white space at its ends and next to markup: what may be such is held back until
// it is known what follows.

#include <string>
#include <string_view>

#include "text/output/marker_matcher.h"

namespace quire {

class TrimmedText {
 public:
  explicit TrimmedText(bool at_markup = false) : at_markup_(at_markup) {}

  void add(std::string_view text, std::string& out) {
    for (const char c : text) add(c, out);
  }
  void add(char c, std::string& out) {
    if (is_space(c)) {
      space_ += c;
      return;
    }
    if (begun_ && at_markup_ && space_.empty()) space_ = "\n";  // two segments stay apart
    if (begun_ || !at_markup_) out += space_;
    space_.clear();
    out += c;
    begun_ = true;
    at_markup_ = false;
  }
  // Markup stands here.
  void mark() {
    if (!begun_) space_.clear();
    at_markup_ = true;
  }
  void finish(std::string& out) {
    if (!at_markup_) out += space_;
    space_.clear();
  }
  bool begun() const { return begun_; }

 private:
  bool at_markup_;
  bool begun_ = false;
  std::string space_;
};

}  // namespace quire
