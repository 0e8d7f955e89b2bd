#pragma once
// Finds stop strings in a text that comes in pieces, and holds back what may become one. Belongs to
// one choice.

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace quire {

class StopStrings {
 public:
  // Of strings that outlive it: choices of a request share them. `include`: the stop string itself
  // belongs to the text.
  StopStrings(std::span<const std::string> stops, bool include);

  // What is certain to be text now. A piece that is not searched cannot end in a stop string.
  std::string push(std::string_view piece, bool search);
  std::string finish();  // what was held back
  // Once set, nothing follows.
  const std::optional<std::string>& found() const { return found_; }

 private:
  std::size_t size_to_hold() const;

  std::span<const std::string> stops_;
  bool include_;
  std::size_t longest_ = 0;
  std::string pending_;
  std::optional<std::string> found_;
};

}  // namespace quire
