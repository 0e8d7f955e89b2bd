#pragma once
// From a parsed JSON document into structs, by tables of members. Only openapi/*.cpp include it.
// Every read() gives false after it has recorded the first error.

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace quire::openapi {

using JsonElement = simdjson::dom::element;

// Where the reader is, and the first thing that was wrong.
class JsonReader {
 public:
  // At the current place: "what[0].where: …", but for what rules the answer's form "… (at /what/0/where)",
  // as errors within schemas and grammars read.
  bool fail(std::string_view what);
  bool expected(std::string_view type, JsonElement got);  // "expected …, got …"
  Error take_error() { return std::move(error_); }
  bool failed() const { return !error_.detail.empty(); }

  const std::string& pointer() const { return pointer_; }  // where it is, a JSON pointer

  // The value here, as text. What rules the answer's form keeps its numbers to the letter.
  std::string text(JsonElement element) const;
  // Fails at the first fraction that a double does not hold to its last digit.
  bool check_fractions(JsonElement element);
  // JSON that stands in a string, in the same way.
  bool read_json(std::string_view text, std::string& out);

  template <class Read>
  bool in_member(std::string_view name, Read read) {
    return in_members({name}, read);
  }
  // One in another.
  template <class Read>
  bool in_members(std::initializer_list<std::string_view> names, Read read) {
    const Place outer{path_.size(), pointer_.size()};
    for (const std::string_view name : names) enter(name);
    const bool ok = read();
    leave(outer);
    return ok;
  }
  template <class Read>
  bool in_item(std::size_t index, Read read) {
    const Place outer{path_.size(), pointer_.size()};
    enter(index);
    const bool ok = read();
    leave(outer);
    return ok;
  }

 private:
  struct Place {
    std::size_t path, pointer;
  };
  void enter(std::string_view member);
  void enter(std::size_t item);
  void leave(Place outer);

  std::string path_;     // as OpenAI writes places: tools[0].function
  std::string pointer_;  // /tools/0/function
  Error error_;
};

// The document lives in a parser of the thread: one at a time, and no longer than the body. In what rules the
// answer's form a number beyond 64 bits reads as some double: text() has it as it came.
Result<simdjson::dom::object> parse_json_object(std::string_view body);

bool read(JsonReader& reader, JsonElement element, bool& out);
bool read(JsonReader& reader, JsonElement element, std::int64_t& out);
bool read(JsonReader& reader, JsonElement element, std::int32_t& out);
bool read(JsonReader& reader, JsonElement element, double& out);
bool read(JsonReader& reader, JsonElement element, std::string& out);

template <class T>
bool read(JsonReader& reader, JsonElement element, std::optional<T>& out) {
  return read(reader, element, out.emplace());
}

template <class T>
bool read(JsonReader& reader, JsonElement element, std::vector<T>& out) {
  simdjson::dom::array items;
  if (element.get(items)) return reader.expected("an array", element);
  out.reserve(items.size());
  std::size_t i = 0;
  for (const JsonElement item : items) {
    if (!reader.in_item(i++, [&] { return read(reader, item, out.emplace_back()); })) return false;
  }
  return true;
}

template <class T>
struct JsonMember {
  std::string_view name;
  bool (*read)(JsonReader&, JsonElement, T&);
};

// Reads into a data member by its type; null leaves the default.
template <auto kMember, class T>
bool read_member(JsonReader& reader, JsonElement element, T& object) {
  return read(reader, element, object.*kMember);
}

// Reads what a function for its base class reads.
template <auto kRead, class T>
bool read_as(JsonReader& reader, JsonElement element, T& object) {
  return kRead(reader, element, object);
}

// Members that the table does not name are left to the caller, who may collect their names. One
// that comes twice is refused: parsers differ in which of them they see.
template <class T>
bool read_members(JsonReader& reader, simdjson::dom::object object,
                  std::span<const JsonMember<T>> members, T& out,
                  std::vector<std::string>* unknown = nullptr) {
  std::vector<bool> seen(members.size());
  for (const auto [key, value] : object) {
    const auto known = std::find_if(members.begin(), members.end(),
                                    [&](const JsonMember<T>& m) { return m.name == key; });
    if (known == members.end()) {
      if (unknown) unknown->emplace_back(key);
      continue;
    }
    const auto index = static_cast<std::size_t>(known - members.begin());
    const auto read_one = [&] {
      if (seen[index]) return reader.fail("is given twice");
      seen[index] = true;
      return value.is_null() || known->read(reader, value, out);
    };
    if (!reader.in_member(key, read_one)) return false;
  }
  return true;
}

template <class T, std::size_t kA, std::size_t kB>
constexpr std::array<T, kA + kB> joined(const std::array<T, kA>& a, const std::array<T, kB>& b) {
  std::array<T, kA + kB> all{};
  std::copy(b.begin(), b.end(), std::copy(a.begin(), a.end(), all.begin()));
  return all;
}

}  // namespace quire::openapi
