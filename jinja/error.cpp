#include "jinja/error.h"

#include <array>

namespace quire {

std::string_view name_of(TemplateError::Kind kind) {
  static constexpr std::array<std::string_view, 13> kNames = {
      "syntax",   "undefined", "security", "runtime", "raised",    "recursion", "arithmetic",
      "overflow", "type",      "value",    "lookup",  "attribute", "limit"};
  return kNames[std::size_t(kind)];
}

Error TemplateError::to_error() const {
  std::string detail = kind == Kind::raised   ? "the chat template refuses the messages"
                       : kind == Kind::syntax ? "the chat template cannot be read"
                                              : "the chat template fails";
  if (line > 0) detail += " in line " + std::to_string(line);
  return Error{ErrorCode::invalid_argument, detail + ": " + message, {}};
}

namespace {

Error failure_of(const TemplateError& cause, const std::string& origin) {
  Error error = cause.to_error();
  if (!origin.empty()) error.detail = origin + ": " + error.detail;
  return error;
}

}  // namespace

TemplateFailure::TemplateFailure(TemplateError cause, const std::string& origin)
    : Failure(failure_of(cause, origin)), cause_(std::move(cause)) {}

namespace jinja {

void fail(ErrorKind kind, std::string message, int line) {
  throw TemplateError{kind, std::move(message), line};
}

}  // namespace jinja
}  // namespace quire
