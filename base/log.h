#pragma once
// One line per event: a name and fields, as text for people or JSON lines for collectors. Any
// thread; never waits for whoever reads the lines. Nothing per token: that is what metrics are for.

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/spelling.h"

namespace quire::log {

enum class Level { debug, info, warn, error };
enum class Format { text, json };

struct Field {
  std::string_view key;
  std::variant<bool, std::int64_t, std::uint64_t, double, std::string_view> value;

  Field(std::string_view k, bool v) : key(k), value(v) {}
  Field(std::string_view k, std::signed_integral auto v) : key(k), value(std::int64_t{v}) {}
  Field(std::string_view k, std::unsigned_integral auto v) : key(k), value(std::uint64_t{v}) {}
  Field(std::string_view k, std::floating_point auto v) : key(k), value(double{v}) {}
  Field(std::string_view k, std::string_view v) : key(k), value(v) {}
  Field(std::string_view k, const char* v) : key(k), value(std::string_view(v)) {}
  Field(std::string_view k, const std::string& v) : key(k), value(std::string_view(v)) {}
};
using Fields = std::initializer_list<Field>;

// The spelling is for sentences: fields called because, error and note.
void configure(Format format, Level lowest, Spelling spelling = nullptr);
std::optional<Level> parse_level(std::string_view name);
std::optional<Format> parse_format(std::string_view name);
bool enabled(Level level);

void write(Level level, std::string_view event, Fields fields);
inline void debug(std::string_view event, Fields fields = {}) {
  if (enabled(Level::debug)) write(Level::debug, event, fields);
}
inline void info(std::string_view event, Fields fields = {}) { write(Level::info, event, fields); }
inline void warn(std::string_view event, Fields fields = {}) { write(Level::warn, event, fields); }
inline void error(std::string_view event, Fields fields = {}) {
  write(Level::error, event, fields);
}

// Waits until what was written has left, at most so long.
void flush(std::chrono::milliseconds limit);

// Lines that a client can cause at will: how many a second are worth having.
class Limit {
 public:
  explicit Limit(int per_second) : per_second_(per_second) {}
  bool allows();

 private:
  const int per_second_;
  std::atomic<std::int64_t> second_{0};
  std::atomic<int> used_{0};
};

// The line without its end, as write() gives it to the sink; `time` is part of it.
std::string format_line(Format format, std::string_view time, Level level, std::string_view event,
                        Fields fields);

}  // namespace quire::log
