#pragma once
// "Replace" of normalizers and decoders: every match of a pattern becomes the same text.

#include <memory>
#include <string>
#include <string_view>

#include "text/tokenizer/split_pattern.h"

namespace quire {

class Json;

class Replacement {
 public:
  explicit Replacement(const Json& field);  // {"pattern": …, "content": …}

  // Of the first match: where it was and how many characters; `end` 0 if there was none or it was
  // empty.
  struct First {
    std::size_t begin = 0, end = 0, chars = 0;
  };
  First apply(std::string& text) const;

  // The pattern where it is plain text; empty: it is an expression.
  const std::string& literal() const { return literal_; }
  const std::string& content() const { return content_; }

 private:
  std::string literal_;
  std::string content_;
  std::unique_ptr<SplitPattern> pattern_;
};

// {"String": …} or {"Regex": …}
std::unique_ptr<SplitPattern> load_pattern(const Json& field);

}  // namespace quire
