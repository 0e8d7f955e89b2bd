#pragma once
// What the methods of texts have in common: their arguments, and results that stay marked as safe.

#include <cstdint>
#include <string>
#include <string_view>

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/values/arithmetic.h"
#include "jinja/values/functions.h"
#include "jinja/values/markup.h"
#include "jinja/values/operators.h"
#include "jinja/values/value.h"

namespace quire::jinja {

struct NamedMethod {
  std::string_view name;
  Value (*method)(Evaluation&, const Value& self, Arguments& arguments);
};

template <std::size_t n>
auto find_in(const NamedMethod (&methods)[n], std::string_view name)
    -> decltype(methods[0].method) {
  for (const NamedMethod& entry : methods) {
    if (entry.name == name) return entry.method;
  }
  return nullptr;
}

inline void require_text(std::string_view method, const Value& value) {
  if (value.is_string()) return;
  fail(ErrorKind::type,
       std::string(method) + " argument must be str, not " + std::string(type_name(value)));
}

// A text argument; where `self` is safe HTML, what is given is escaped.
inline std::string text_argument(std::string_view method, const Value& self, const Value& value) {
  require_text(method, value);
  return self.text().safe ? escape(value).string() : value.string();
}

inline bool given(const List& arguments, std::size_t i) {
  return i < arguments.size() && !arguments[i].is(Value::Kind::missing);
}

inline Value same_safety(Evaluation& evaluation, const Value& self, std::string text) {
  return evaluation.text(std::move(text), self.text().safe);
}

}  // namespace quire::jinja
