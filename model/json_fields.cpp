#include "model/json_fields.h"

#include <cmath>
#include <fstream>

namespace quire {

namespace {

std::string describe(simdjson::dom::element value) {
  std::string found = simdjson::minify(value);
  constexpr std::size_t kLongest = 60;
  if (found.size() > kLongest) found = found.substr(0, kLongest) + "…";
  return found;
}

// Python's json module writes numbers that JSON does not have.
std::string without_python_numbers(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\' && i + 1 < json.size()) out.push_back(json[i++]);
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (const std::string_view rest = json.substr(i);
               rest.starts_with("Infinity") || rest.starts_with("NaN")) {
      if (!out.empty() && out.back() == '-') out.pop_back();
      out += "null";
      i += c == 'I' ? 7 : 2;
      continue;
    }
    out.push_back(json[i]);
  }
  return out;
}

}  // namespace

std::optional<simdjson::dom::element> Fields::find(Names names) const {
  for (const std::string_view name : names) {
    simdjson::dom::element value;
    if (object_[name].get(value) == simdjson::SUCCESS && !value.is_null()) return value;
  }
  return {};
}

void Fields::fail(std::string_view field, const std::string& message, ErrorCode code) const {
  const std::string path = prefix_ + std::string(field);
  throw Failure(Error{code, file_.string() + ": " + path + ": " + message, path});
}

std::optional<int> Fields::integer(Names names, IntRange range) const {
  const auto value = find(names);
  if (!value) return {};
  std::int64_t n = 0;
  double d = 0;
  const bool whole = value->get(n) == simdjson::SUCCESS ||
                     (value->get(d) == simdjson::SUCCESS && std::abs(d) < 1e15 &&
                      d == std::trunc(d) && (n = static_cast<std::int64_t>(d), true));  // 8.0, 1e3
  if (!whole || n < range.min || n > range.max) {
    fail(*names.begin(), "must be an integer from " + std::to_string(range.min) + " to " +
                             std::to_string(range.max) + ", is " + describe(*value));
  }
  return static_cast<int>(n);
}

int Fields::need_integer(Names names, IntRange range) const {
  const auto n = integer(names, range);
  if (!n) fail(*names.begin(), "is missing");
  return *n;
}

std::optional<double> Fields::number(Names names) const {
  const auto value = find(names);
  if (!value) return {};
  double d = 0;
  if (value->get(d) != simdjson::SUCCESS) {
    fail(*names.begin(), "must be a number, is " + describe(*value));
  }
  return d;
}

std::optional<bool> Fields::boolean(Names names) const {
  const auto value = find(names);
  if (!value) return {};
  bool b = false;
  if (value->get(b) != simdjson::SUCCESS) {
    fail(*names.begin(), "must be true or false, is " + describe(*value));
  }
  return b;
}

std::optional<std::string> Fields::text(Names names) const {
  const auto value = find(names);
  if (!value) return {};
  std::string_view s;
  if (value->get(s) != simdjson::SUCCESS) {
    fail(*names.begin(), "must be a string, is " + describe(*value));
  }
  return std::string(s);
}

std::optional<Fields> Fields::object(Names names) const {
  const auto value = find(names);
  if (!value) return {};
  simdjson::dom::object child;
  if (value->get(child) != simdjson::SUCCESS) {
    fail(*names.begin(), "must be an object, is " + describe(*value));
  }
  return Fields(child, file_, prefix_ + std::string(*names.begin()) + ".");
}

std::optional<std::vector<std::string>> Fields::texts(Names names) const {
  const auto value = find(names);
  if (!value) return {};
  simdjson::dom::array array;
  if (value->get(array) != simdjson::SUCCESS) {
    fail(*names.begin(), "must be a list of strings, is " + describe(*value));
  }
  std::vector<std::string> out;
  for (const simdjson::dom::element item : array) {
    std::string_view s;
    if (item.get(s) != simdjson::SUCCESS) {
      fail(*names.begin(), "must be a list of strings, holds " + describe(item));
    }
    out.emplace_back(s);
  }
  return out;
}

std::optional<std::vector<double>> Fields::numbers(Names names) const {
  const auto value = find(names);
  if (!value) return {};
  simdjson::dom::array array;
  if (value->get(array) != simdjson::SUCCESS) {
    fail(*names.begin(), "must be a list of numbers, is " + describe(*value));
  }
  std::vector<double> out;
  for (const simdjson::dom::element item : array) {
    double d = std::numeric_limits<double>::infinity();  // null, or {"__float__": "Infinity"}
    if (!item.is_null() && !item.is_object() && item.get(d) != simdjson::SUCCESS) {
      fail(*names.begin(), "must be a list of numbers, holds " + describe(item));
    }
    out.push_back(d);
  }
  return out;
}

std::vector<std::int32_t> Fields::integers(Names names, IntRange range) const {
  const auto value = find(names);
  if (!value) return {};
  std::vector<std::int32_t> out;
  const auto take = [&](simdjson::dom::element item) {
    std::int64_t n = 0;
    if (item.get(n) != simdjson::SUCCESS || n < range.min || n > range.max) {
      fail(*names.begin(), "must hold integers from " + std::to_string(range.min) + " to " +
                               std::to_string(range.max) + ", holds " + describe(item));
    }
    out.push_back(static_cast<std::int32_t>(n));
  };
  simdjson::dom::array array;
  if (value->get(array) == simdjson::SUCCESS) {
    for (const simdjson::dom::element item : array) take(item);
  } else {
    take(*value);
  }
  return out;
}

std::vector<std::string> Fields::names() const {
  std::vector<std::string> out;
  for (const auto& field : object_) out.emplace_back(field.key);
  return out;
}

JsonDocument::JsonDocument(std::string_view json, std::filesystem::path file) {
  simdjson::dom::element element;
  simdjson::dom::object object;
  const std::string text = without_python_numbers(json);
  if (const auto error = parser_.parse(text).get(element); error != simdjson::SUCCESS) {
    throw Failure(ErrorCode::invalid_argument,
                  file.string() + ": not JSON: " + simdjson::error_message(error));
  }
  if (element.get(object) != simdjson::SUCCESS) {
    throw Failure(ErrorCode::invalid_argument, file.string() + ": must be a JSON object");
  }
  root_.emplace(object, std::move(file));
}

std::string read_text_file(const std::filesystem::path& file, std::size_t limit) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (error) {
    throw Failure(ErrorCode::not_found, file.string() + ": " + error.message());
  }
  if (size > limit) {
    throw Failure(ErrorCode::too_large, file.string() + ": " + std::to_string(size) +
                                            " bytes, at most " + std::to_string(limit));
  }
  std::string text(size, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(size));
  if (!in) throw Failure(ErrorCode::invalid_argument, file.string() + ": cannot be read");
  return text;
}

}  // namespace quire
