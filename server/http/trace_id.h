#pragma once
// W3C Trace Context: the trace that a request belongs to.

#include <string_view>

namespace quire {

struct TraceContext {
  std::string_view trace_id{};   // 32 hexadecimal digits; empty: none, or malformed
  std::string_view parent_id{};  // 16
  bool sampled = false;
};

// Of a traceparent header, which outlives it.
TraceContext trace_context_of(std::string_view traceparent);
// Of a traceparent header: 32 hexadecimal digits; empty where it has none or is malformed.
std::string_view trace_id_of(std::string_view traceparent);

}  // namespace quire
