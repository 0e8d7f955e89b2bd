#include "text/output/schema_parts.h"

#include <algorithm>

#include "jinja/values/dict.h"

namespace quire {

using jinja::Value;

const Value* schema_member(const Value* of, std::string_view name) {
  return of != nullptr && of->is(Value::Kind::dict) ? of->dict().find(name) : nullptr;
}

const Value* resolve_reference(const Value& root, std::string_view reference) {
  if (!reference.starts_with("#/")) return nullptr;
  const Value* at = &root;
  reference.remove_prefix(2);
  while (at != nullptr && !reference.empty()) {
    const std::size_t slash = std::min(reference.find('/'), reference.size());
    at = schema_member(at, reference.substr(0, slash));
    reference.remove_prefix(std::min(slash + 1, reference.size()));
  }
  return at;
}

}  // namespace quire
