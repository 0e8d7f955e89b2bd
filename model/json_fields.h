#pragma once
// A JSON object read field by field, for the .cpp files that parse configuration. Absent and null
// are the same. Wrong types and ranges throw Failure naming file, field, expected and found.

#include <simdjson.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace quire {

struct IntRange {
  std::int64_t min = 1;
  std::int64_t max = std::numeric_limits<std::int32_t>::max();
};

class Fields {
 public:
  // Spellings of one field, the preferred first.
  using Names = std::initializer_list<std::string_view>;

  Fields(simdjson::dom::object object, std::filesystem::path file, std::string prefix = {})
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  std::optional<simdjson::dom::element> find(Names names) const;
  bool has(Names names) const { return find(names).has_value(); }

  std::optional<int> integer(Names names, IntRange range = {}) const;
  std::optional<double> number(Names names) const;
  std::optional<bool> boolean(Names names) const;
  std::optional<std::string> text(Names names) const;
  std::optional<Fields> object(Names names) const;
  std::optional<std::vector<std::string>> texts(Names names) const;
  std::optional<std::vector<double>> numbers(Names names) const;
  // One integer or a list of them.
  std::vector<std::int32_t> integers(Names names, IntRange range) const;

  std::vector<std::string> names() const;  // of all fields

  int need_integer(Names names, IntRange range = {}) const;
  [[noreturn]] void fail(std::string_view field, const std::string& message,
                         ErrorCode code = ErrorCode::invalid_argument) const;

  const std::filesystem::path& file() const { return file_; }

 private:
  simdjson::dom::object object_;
  std::filesystem::path file_;
  std::string prefix_;  // "text_config."
};

// A document whose root must be an object. Accepts the bare Infinity and NaN that Python writes, as
// null.
class JsonDocument {
 public:
  JsonDocument(std::string_view json, std::filesystem::path file);
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;
  const Fields& root() const { return *root_; }

 private:
  simdjson::dom::parser parser_;
  std::optional<Fields> root_;
};

// The whole file; throws Failure where it is missing, unreadable or beyond `limit` bytes.
std::string read_text_file(const std::filesystem::path& file, std::size_t limit);

}  // namespace quire
