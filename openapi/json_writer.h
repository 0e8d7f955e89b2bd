#pragma once
// Appends JSON to a string. The caller keeps the order of calls right; commas come by themselves.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"

namespace quire::openapi {

// The string literal with its quotes. Bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);
void append_json_int(std::string& out, std::int64_t value);

class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }

  JsonWriter& key(std::string_view name);      // plain ASCII, as all our names are
  JsonWriter& any_key(std::string_view name);  // escaped
  JsonWriter& string(std::string_view text);
  JsonWriter& integer(std::int64_t value);
  JsonWriter& number(double value);  // not finite: as near as JSON has, ±1.7976931348623157e308
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& null() { return raw("null"); }
  JsonWriter& raw(std::string_view json);  // a value that is JSON already
  JsonWriter& ids(std::span<const TokenId> values);

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();

  std::string& out_;
  bool needs_comma_ = false;
};

}  // namespace quire::openapi
