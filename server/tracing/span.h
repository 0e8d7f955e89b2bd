#pragma once
// One span of a W3C trace, as OpenTelemetry has them: what happened from when to when, within what.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace quire {

using SpanValue = std::variant<std::string, std::int64_t, double>;
using SpanAttributes = std::vector<std::pair<std::string, SpanValue>>;

struct SpanEvent {
  std::int64_t time = 0;  // nanoseconds since the epoch
  std::string name;
  SpanAttributes attributes;
};

struct Span {
  std::string trace_id;   // 32 hexadecimal digits
  std::string span_id;    // 16
  std::string parent_id;  // 16, or empty: the trace begins here
  std::string name;
  bool is_server = false;  // else it lies within this process
  bool is_error = false;
  std::int64_t begin = 0, end = 0;  // nanoseconds since the epoch
  SpanAttributes attributes;
  std::vector<SpanEvent> events;
};

// Where spans go. Any thread; never waits.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  virtual void take(std::vector<Span> spans) = 0;
};

}  // namespace quire
