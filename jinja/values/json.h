#pragma once
// Python's json.dumps.

#include <optional>
#include <string>

#include "jinja/values/value.h"

namespace quire::jinja {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; on one line where absent
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Fails (type) for what JSON cannot say, (limit) beyond 16 MiB.
std::string dump_json(const Value& value, const JsonStyle& style);

}  // namespace quire::jinja
