#pragma once
// The filters by family, and what they share.

#include <functional>
#include <string>
#include <string_view>

#include "jinja/syntax/ast.h"
#include "jinja/values/functions.h"

namespace quire::jinja {

struct NamedFilter {
  std::string_view name;
  FilterFunction function;
};

// Each family's table, sorted in any way; `count` entries.
struct FilterTable {
  const NamedFilter* filters;
  std::size_t count;
};
FilterTable text_filters();
FilterTable wrap_filters();
FilterTable number_filters();
FilterTable sequence_filters();
FilterTable order_filters();
FilterTable lazy_filters();

// item.a.b or item[0] as filters' `attribute` says; the value itself where it is none or missing.
using Getter = std::function<Value(const Value&)>;
Getter attribute_getter(Evaluation& evaluation, const Value& attribute,
                        const Value& default_value = Value::missing());
Value lower_if_text(const Value& value);

// Stable; fails where two keys have no order.
void sort_by(Evaluation& evaluation, List& items, bool reverse, const Getter& key);

inline bool flag(const List& bound, std::size_t i) {
  return !bound[i].is(Value::Kind::missing) && truthy(bound[i]);
}
inline bool is_given(const Value& value) { return !value.is(Value::Kind::missing); }
Value soft_text(const Value& value);  // a text stays as it is, anything else becomes str()

}  // namespace quire::jinja
