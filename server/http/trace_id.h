#pragma once
// W3C Trace Context: the trace that a request belongs to.

#include <string_view>

namespace quire {

struct TraceContext {
  std::string_view trace_id{};   // 32 hexadecimal digits; empty: none, or malformed
  std::string_view parent_id{};  // 16
  bool sampled = false;
};

// Reads a traceparent header, which outlives the result.
TraceContext trace_context_of(std::string_view traceparent);
// The trace's id in a traceparent header, 32 hexadecimal digits; empty where there is none.
std::string_view trace_id_of(std::string_view traceparent);

}  // namespace quire
