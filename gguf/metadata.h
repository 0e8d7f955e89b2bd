#pragma once
// What a GGUF file says of itself beside its tensors: keys with values that stay in the mapped
// file, read when somebody asks. Every complaint names the file, the key and its place.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace quire::gguf {

// The file's own numbers.
enum class ValueType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

// Checked to lie in the file. A scalar is an array of one.
struct Value {
  ValueType type = ValueType::u8;  // of the items
  bool is_array = false;
  std::uint64_t count = 1;
  std::string_view bytes;   // of all items; a string is its length (u64) and its bytes
  std::size_t offset = 0;   // of the value in the file
};

class Metadata {
 public:
  explicit Metadata(std::filesystem::path file) : file_(std::move(file)) {}
  // False: the key is there already.
  bool add(std::string_view key, const Value& value) { return values_.emplace(key, value).second; }

  bool has(std::string_view key) const { return values_.contains(key); }
  // Absent: empty. Failure where the value is of another kind or outside of the range.
  std::optional<std::int64_t> integer(std::string_view key, IntRange range = {}) const;
  std::optional<double> number(std::string_view key) const;  // finite
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
  // Arrays; integers() and numbers() take one number for a list of it, and bools for 0 and 1.
  std::vector<std::int64_t> integers(std::string_view key, IntRange range = {}) const;
  std::vector<double> numbers(std::string_view key) const;
  std::vector<std::string_view> texts(std::string_view key) const;

  std::int64_t need_integer(std::string_view key, IntRange range = {}) const;
  std::string_view need_text(std::string_view key) const;

  const std::filesystem::path& file() const { return file_; }
  // Throws Failure about a key, whether it is there or not.
  [[noreturn]] void fail(std::string_view key, const std::string& problem,
                         ErrorCode code = ErrorCode::invalid_argument) const;

 private:
  const Value* find(std::string_view key) const;
  const Value* scalar(std::string_view key) const;
  std::int64_t whole(std::string_view key, const Value& value, std::size_t index,
                     IntRange range) const;
  double real(std::string_view key, const Value& value, std::size_t index) const;

  std::filesystem::path file_;
  std::map<std::string_view, Value> values_;
};

// Bytes of one item; 0 for strings and arrays.
std::size_t size_of(ValueType type);

}  // namespace quire::gguf
