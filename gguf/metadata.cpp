#include "gguf/metadata.h"

#include <cmath>
#include <cstring>

namespace quire::gguf {

namespace {

template <class T>
T item(const Value& value, std::size_t index) {
  T out;
  std::memcpy(&out, value.bytes.data() + index * sizeof(T), sizeof(T));
  return out;
}

std::string_view name_of(ValueType type) {
  constexpr std::string_view kNames[] = {"u8",  "i8",     "u16",  "i16",   "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<std::size_t>(type)];
}

std::string describe(const Value& value) {
  const std::string items(name_of(value.type));
  return value.is_array ? "an array of " + std::to_string(value.count) + " × " + items
                        : "a value of type " + items;
}

bool is_whole(ValueType type) {
  return type != ValueType::f32 && type != ValueType::f64 && type != ValueType::string &&
         type != ValueType::array;
}

}  // namespace

std::size_t size_of(ValueType type) {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::boolean:
      return 1;
    case ValueType::u16:
    case ValueType::i16:
      return 2;
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::f32:
      return 4;
    case ValueType::u64:
    case ValueType::i64:
    case ValueType::f64:
      return 8;
    case ValueType::string:
    case ValueType::array:
      break;
  }
  return 0;
}

void Metadata::fail(std::string_view key, const std::string& problem, ErrorCode code) const {
  const Value* value = find(key);
  const std::string place = value != nullptr ? " at byte " + std::to_string(value->offset) : "";
  throw Failure(
      Error{code, file_.string() + ": metadata \"" + std::string(key) + "\"" + place + ": " + problem,
            std::string(key)});
}

const Value* Metadata::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

const Value* Metadata::scalar(std::string_view key) const {
  const Value* value = find(key);
  if (value != nullptr && value->is_array) fail(key, "expected one value, is " + describe(*value));
  return value;
}

std::int64_t Metadata::whole(std::string_view key, const Value& value, std::size_t index,
                             IntRange range) const {
  if (!is_whole(value.type)) fail(key, "expected an integer, is " + describe(value));
  std::int64_t number = 0;
  switch (value.type) {
    case ValueType::u8:
    case ValueType::boolean:
      number = item<std::uint8_t>(value, index);
      break;
    case ValueType::i8:
      number = item<std::int8_t>(value, index);
      break;
    case ValueType::u16:
      number = item<std::uint16_t>(value, index);
      break;
    case ValueType::i16:
      number = item<std::int16_t>(value, index);
      break;
    case ValueType::u32:
      number = item<std::uint32_t>(value, index);
      break;
    case ValueType::i32:
      number = item<std::int32_t>(value, index);
      break;
    default:
      number = item<std::int64_t>(value, index);
      if (value.type == ValueType::u64 && number < 0) number = std::numeric_limits<std::int64_t>::max();
  }
  if (number < range.min || number > range.max) {
    fail(key, "must be from " + std::to_string(range.min) + " to " + std::to_string(range.max) +
                  ", is " + std::to_string(number));
  }
  return number;
}

double Metadata::real(std::string_view key, const Value& value, std::size_t index) const {
  double number = 0;
  if (value.type == ValueType::f32) {
    number = item<float>(value, index);
  } else if (value.type == ValueType::f64) {
    number = item<double>(value, index);
  } else {
    constexpr std::int64_t kMost = std::int64_t{1} << 53;
    number = static_cast<double>(whole(key, value, index, {-kMost, kMost}));
  }
  if (!std::isfinite(number)) fail(key, "must be a finite number");
  return number;
}

std::optional<std::int64_t> Metadata::integer(std::string_view key, IntRange range) const {
  const Value* value = scalar(key);
  return value == nullptr ? std::nullopt : std::optional(whole(key, *value, 0, range));
}

std::optional<double> Metadata::number(std::string_view key) const {
  const Value* value = scalar(key);
  return value == nullptr ? std::nullopt : std::optional(real(key, *value, 0));
}

std::optional<bool> Metadata::boolean(std::string_view key) const {
  const Value* value = scalar(key);
  if (value == nullptr) return {};
  if (value->type != ValueType::boolean) fail(key, "expected a bool, is " + describe(*value));
  return item<std::uint8_t>(*value, 0) != 0;
}

std::optional<std::string_view> Metadata::text(std::string_view key) const {
  const Value* value = scalar(key);
  if (value == nullptr) return {};
  if (value->type != ValueType::string) fail(key, "expected a string, is " + describe(*value));
  return value->bytes.substr(sizeof(std::uint64_t));
}

std::vector<std::int64_t> Metadata::integers(std::string_view key, IntRange range) const {
  std::vector<std::int64_t> all;
  const Value* value = find(key);
  for (std::size_t i = 0; value != nullptr && i < value->count; ++i) {
    all.push_back(whole(key, *value, i, range));
  }
  return all;
}

std::vector<double> Metadata::numbers(std::string_view key) const {
  std::vector<double> all;
  const Value* value = find(key);
  if (value != nullptr && value->type == ValueType::string) {
    fail(key, "expected numbers, is " + describe(*value));
  }
  for (std::size_t i = 0; value != nullptr && i < value->count; ++i) {
    all.push_back(real(key, *value, i));
  }
  return all;
}

std::vector<std::string_view> Metadata::texts(std::string_view key) const {
  std::vector<std::string_view> all;
  const Value* value = find(key);
  if (value == nullptr) return all;
  if (!value->is_array || value->type != ValueType::string) {
    fail(key, "expected an array of strings, is " + describe(*value));
  }
  all.reserve(value->count);
  std::string_view left = value->bytes;
  for (std::size_t i = 0; i < value->count; ++i) {
    std::uint64_t length = 0;
    std::memcpy(&length, left.data(), sizeof(length));
    all.push_back(left.substr(sizeof(length), length));
    left.remove_prefix(sizeof(length) + length);
  }
  return all;
}

std::int64_t Metadata::need_integer(std::string_view key, IntRange range) const {
  if (const auto value = integer(key, range)) return *value;
  fail(key, "is missing");
}

std::string_view Metadata::need_text(std::string_view key) const {
  if (const auto value = text(key)) return *value;
  fail(key, "is missing");
}

}  // namespace quire::gguf
