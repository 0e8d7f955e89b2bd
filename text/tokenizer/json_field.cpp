#include "text/tokenizer/json_field.h"

#include <fmt/format.h>

#include "base/error.h"
#include "text/utf8.h"

namespace quire {
namespace {

template <class T>
T value_or_fail(const JsonField& field, simdjson::simdjson_result<T> result,
                std::string_view expected) {
  T value;
  if (std::move(result).get(value)) field.fail(fmt::format("expected {}", expected));
  return value;
}

}  // namespace

void JsonField::fail(std::string_view problem) const {
  const std::string place = path_.empty() ? "/" : path_;
  throw Failure(
      Error{ErrorCode::invalid_argument, fmt::format("{}: {}: {}", file_, place, problem), place});
}

std::optional<JsonField> JsonField::find(std::string_view key) const {
  simdjson::dom::element value;
  if (object().at_key(key).get(value) || value.is_null()) return {};
  return child(key, value);
}

JsonField JsonField::at(std::string_view key) const {
  auto field = find(key);
  if (!field) child(key, element_).fail("is missing");
  return *field;
}

JsonField JsonField::child(std::string_view key, simdjson::dom::element element) const {
  return {file_, fmt::format("{}/{}", path_, key), element};
}

std::vector<JsonField> JsonField::items() const {
  std::vector<JsonField> items;
  for (const auto element : array()) items.push_back(child(std::to_string(items.size()), element));
  return items;
}

std::string_view JsonField::string() const {
  return value_or_fail(*this, element_.get_string(), "a string");
}

char32_t JsonField::character() const {
  const std::string_view text = string();
  if (utf8_count(text) != 1) fail("expected a string of one character");
  const char* at = text.data();
  return utf8_next(at);
}

bool JsonField::boolean() const {
  return value_or_fail(*this, element_.get_bool(), "true or false");
}

double JsonField::number() const { return value_or_fail(*this, element_.get_double(), "a number"); }

std::int64_t JsonField::integer(std::int64_t lowest, std::int64_t highest) const {
  const auto expected = fmt::format("an integer from {} to {}", lowest, highest);
  const auto value = value_or_fail(*this, element_.get_int64(), expected);
  if (value < lowest || value > highest) fail("expected " + expected);
  return value;
}

simdjson::dom::array JsonField::array() const {
  return value_or_fail(*this, element_.get_array(), "an array");
}

simdjson::dom::object JsonField::object() const {
  return value_or_fail(*this, element_.get_object(), "an object");
}

bool JsonField::flag(std::string_view key, bool absent) const {
  const auto field = find(key);
  return field ? field->boolean() : absent;
}

std::string JsonField::text(std::string_view key, std::string_view absent) const {
  const auto field = find(key);
  return std::string(field ? field->string() : absent);
}

}  // namespace quire
