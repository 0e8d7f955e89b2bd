#pragma once
// W3C Trace Context: the trace that a request belongs to.

#include <string_view>

namespace quire {

// Of a traceparent header: 32 hexadecimal digits; empty where it has none or is malformed.
std::string_view trace_id_of(std::string_view traceparent);

}  // namespace quire
