#pragma once
// Why a grammar was refused, or why a running one had to stop.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace quire::structured {

enum class GrammarErrorKind : std::uint8_t {
  syntax,         // the specification is not well formed
  unsupported,    // well formed, beyond what is enforced here
  unsatisfiable,  // no text fits
  limit,          // over the budget of time or memory
};

constexpr std::string_view to_string(GrammarErrorKind kind) {
  switch (kind) {
    case GrammarErrorKind::syntax:
      return "syntax";
    case GrammarErrorKind::unsupported:
      return "unsupported";
    case GrammarErrorKind::unsatisfiable:
      return "unsatisfiable";
    case GrammarErrorKind::limit:
      return "limit";
  }
  return "";
}

// Thrown while compiling; caught once, where the compilation was asked for.
class GrammarFailure : public std::runtime_error {
 public:
  GrammarFailure(GrammarErrorKind kind, const std::string& what, std::string pointer = {})
      : std::runtime_error(what), kind_(kind), pointer_(std::move(pointer)) {}

  GrammarErrorKind kind() const { return kind_; }
  // The place in the specification: a JSON pointer ("/properties/a/pattern"), empty for its root.
  const std::string& pointer() const { return pointer_; }

 private:
  GrammarErrorKind kind_;
  std::string pointer_;
};

}  // namespace quire::structured
