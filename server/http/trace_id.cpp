#include "server/http/trace_id.h"

namespace quire {

namespace {

// version "-" trace-id "-" parent-id "-" flags; later versions may append more.
constexpr std::size_t kVersionEnd = 2, kTraceEnd = 35, kParentEnd = 52, kSize = 55;
constexpr std::string_view kLowerHex = "0123456789abcdef";

bool is_hex(std::string_view text) {
  return text.find_first_not_of(kLowerHex) == std::string_view::npos;
}

bool is_zero(std::string_view text) { return text.find_first_not_of('0') == text.npos; }

}  // namespace

TraceContext trace_context_of(std::string_view traceparent) {
  if (traceparent.size() < kSize) return {};
  const std::string_view version = traceparent.substr(0, kVersionEnd);
  const std::string_view trace = traceparent.substr(kVersionEnd + 1, kTraceEnd - kVersionEnd - 1);
  const std::string_view parent = traceparent.substr(kTraceEnd + 1, kParentEnd - kTraceEnd - 1);
  const std::string_view flags = traceparent.substr(kParentEnd + 1, kSize - kParentEnd - 1);
  const bool whole = traceparent.size() == kSize || (version != "00" && traceparent[kSize] == '-');
  const bool parted = traceparent[kVersionEnd] == '-' && traceparent[kTraceEnd] == '-' &&
                      traceparent[kParentEnd] == '-';
  const bool hex = is_hex(version) && is_hex(trace) && is_hex(parent) && is_hex(flags);
  if (!whole || !parted || !hex || version == "ff" || is_zero(trace) || is_zero(parent)) return {};
  return {trace, parent, kLowerHex.find(flags.back()) % 2 == 1};
}

std::string_view trace_id_of(std::string_view traceparent) {
  return trace_context_of(traceparent).trace_id;
}

}  // namespace quire
