#pragma once
// A value in a JSON file that knows its place in it, so that every complaint names file and field.
// Only for .cpp files that load.

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class JsonField {
 public:
  JsonField(std::string_view file, std::string path, simdjson::dom::element element)
      : file_(file), path_(std::move(path)), element_(element) {}

  [[noreturn]] void fail(std::string_view problem) const;

  bool is_null() const { return element_.is_null(); }
  bool is_string() const { return element_.is_string(); }
  bool is_array() const { return element_.is_array(); }
  bool is_object() const { return element_.is_object(); }

  std::optional<JsonField> find(std::string_view key) const;  // empty: absent or null
  JsonField at(std::string_view key) const;                   // fails where find() is empty
  JsonField child(std::string_view key, simdjson::dom::element element) const;
  std::vector<JsonField> items() const;

  std::string_view string() const;
  char32_t character() const;  // a string of one character
  bool boolean() const;
  double number() const;
  std::int64_t integer(std::int64_t lowest, std::int64_t highest) const;
  simdjson::dom::array array() const;
  simdjson::dom::object object() const;

  bool flag(std::string_view key, bool absent) const;
  std::string text(std::string_view key, std::string_view absent = {}) const;
  bool required_flag(std::string_view key) const { return at(key).boolean(); }
  std::string required_text(std::string_view key) const { return std::string(at(key).string()); }

 private:
  std::string_view file_;
  std::string path_;  // JSON pointer
  simdjson::dom::element element_;
};

}  // namespace quire
