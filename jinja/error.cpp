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
  std::string detail = "chat template";
  if (line > 0) detail += ", line " + std::to_string(line);
  if (kind != Kind::raised) detail.append(" (").append(name_of(kind)).append(")");
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
