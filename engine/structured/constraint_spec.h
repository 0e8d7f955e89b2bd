#pragma once
// What a request's output must be like, as data: it travels from the front end to the engine, which
// may be another process, and is compiled there.

#include <cstdint>
#include <string>

#include "base/fields.h"

namespace quire {

enum class ConstraintKind : std::uint8_t {
  json_object,     // any JSON object; no text
  json_schema,     // text: the schema
  regex,           // text: the expression, for the whole output
  choice,          // text: a JSON array of strings
  grammar,         // text: EBNF
  structural_tag,  // text: the JSON description
};

struct ConstraintSpec {
  ConstraintKind kind = ConstraintKind::json_object;
  std::string text;

  using Fields = FieldList<&ConstraintSpec::kind, &ConstraintSpec::text>;
  friend bool operator==(const ConstraintSpec&, const ConstraintSpec&) = default;
};

}  // namespace quire
