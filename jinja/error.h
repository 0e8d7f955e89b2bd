#pragma once
// Why a template could not be parsed or rendered, in the kinds that Python would have raised.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace quire {

struct TemplateError {
  enum class Kind : std::uint8_t {
    syntax,
    undefined,
    security,
    runtime,
    raised,
    recursion,
    arithmetic,
    overflow,
    type,
    value,
    lookup,
    attribute,
    limit,  // ours: steps or memory exceeded
  };
  Kind kind = Kind::runtime;
  std::string message;  // for `raised`, exactly what the template said
  int line = 0;         // of the template; 0 where unknown

  Error to_error() const;  // invalid_argument, with kind and line in the sentence
};

std::string_view name_of(TemplateError::Kind kind);

// A template that could not be parsed.
class TemplateFailure : public Failure {
 public:
  TemplateFailure(TemplateError cause,
                  const std::string& origin);  // origin: the file, if there is one
  const TemplateError& cause() const { return cause_; }

 private:
  TemplateError cause_;
};

namespace jinja {

using ErrorKind = TemplateError::Kind;

[[noreturn]] void fail(ErrorKind kind, std::string message, int line = 0);  // throws TemplateError

}  // namespace jinja
}  // namespace quire
