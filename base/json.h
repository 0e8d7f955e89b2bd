#pragma once
// JSON files, read value by value: configuration, tokenizers, headers of weights. What nobody asks
// for may be anything that Python writes: integers of any size, NaN and Infinity, half a surrogate
// pair (read as U+FFFD). Numbers stay text until somebody asks for one. Of members with the same
// name the last one counts. Every complaint names the file, the place and what was found there.
// Documents are immutable: any number of threads may read one.

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

class JsonDocument;
struct JsonMember;
template <class Value>
class JsonRange;

// A value of a document, valid as long as that lives. Cheap to copy.
class Json {
 public:
  enum class Kind : std::uint8_t { null, boolean, number, string, array, object };
  // Spellings of one member, the preferred first.
  using Names = std::initializer_list<std::string_view>;

  Kind kind() const;
  bool is_null() const { return kind() == Kind::null; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_array() const { return kind() == Kind::array; }
  bool is_object() const { return kind() == Kind::object; }

  // The value; Failure where it is of another kind.
  bool as_boolean() const;
  double as_number() const;                       // finite
  std::int64_t as_integer(IntRange range) const;  // 8.0 and 1e3 are integers too
  std::string_view as_string() const;
  std::string_view as_character() const;  // a string of one
  JsonRange<Json> items() const;
  JsonRange<JsonMember> members() const;

  std::optional<std::int64_t> whole_number() const;  // empty: it is something else
  // A member; empty where it is absent or null.
  std::optional<Json> find(Names names) const;
  // This object; members that it has not, not even as null, are those of `defaults`.
  Json with_defaults(const JsonDocument& defaults) const;
  bool has(Names names) const { return find(names).has_value(); }
  Json at(std::string_view name) const;  // Failure where find() is empty

  std::optional<int> integer(Names names, IntRange range = {}) const;
  std::optional<double> number(Names names) const;
  std::optional<bool> boolean(Names names) const;
  std::optional<std::string> text(Names names) const;
  std::optional<Json> object(Names names) const;
  std::optional<std::vector<std::string>> texts(Names names) const;
  // null, Infinity and {"__float__": "Infinity"} are infinite.
  std::optional<std::vector<double>> numbers(Names names) const;
  // One integer or a list of them; none where it is absent.
  std::vector<std::int32_t> integers(Names names, IntRange range) const;
  // Failure where the member is absent.
  std::string need_text(std::string_view name) const;
  int need_integer(Names names, IntRange range = {}) const;

  [[noreturn]] void fail(const std::string& problem,
                         ErrorCode code = ErrorCode::invalid_argument) const;
  // Of a member, whether it is there or not.
  [[noreturn]] void fail_at(std::string_view name, const std::string& problem,
                            ErrorCode code = ErrorCode::invalid_argument) const;
  std::string path() const;      // "model.vocab", "added_tokens[3].id"; empty: the whole
  std::string describe() const;  // what it is, cut short, for messages
  const std::filesystem::path& file() const;

 private:
  friend class JsonDocument;
  template <class Value>
  friend class JsonRange;
  Json(const JsonDocument& document, std::uint32_t index) : document_(&document), index_(index) {}
  [[noreturn]] void expected(const std::string& what) const;

  const JsonDocument* document_;
  std::uint32_t index_;
  const JsonDocument* defaults_ = nullptr;
};

// Of an array's items or an object's members, in the order of the file.
template <class Value>
class JsonRange {
 public:
  class Iterator {
   public:
    Value operator*() const;
    Iterator& operator++();
    bool operator!=(const Iterator& other) const { return index_ != other.index_; }

   private:
    friend class JsonRange;
    Iterator(const JsonDocument& document, std::uint32_t index)
        : document_(&document), index_(index) {}
    const JsonDocument* document_;
    std::uint32_t index_;
  };

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Iterator begin() const { return {document_, begin_}; }
  Iterator end() const { return {document_, end_}; }
  Value operator[](std::size_t i) const;  // walks there

 private:
  friend class Json;
  JsonRange(const JsonDocument& document, std::uint32_t begin, std::uint32_t end, std::size_t size)
      : document_(document), begin_(begin), end_(end), size_(size) {}
  const JsonDocument& document_;
  std::uint32_t begin_, end_;
  std::size_t size_;
};

struct JsonMember {
  std::string_view name;
  Json value;
};

extern template class JsonRange<Json>;
extern template class JsonRange<JsonMember>;

class JsonDocument {
 public:
  // `file` is for messages, where it is not empty. Throws Failure with line and column where it is
  // not JSON.
  JsonDocument(std::string text, std::filesystem::path file);
  // Reads at most `limit` bytes.
  static JsonDocument read(const std::filesystem::path& file, std::size_t limit);
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  Json root() const { return {*this, 0}; }
  Json object() const;  // the root, which must be one
  const std::filesystem::path& file() const { return file_; }

 private:
  friend class Json;
  friend class JsonParser;
  template <class Value>
  friend class JsonRange;

  // In the order of the text; an object's children are name, value, name, value, …
  struct Node {
    std::uint32_t begin;  // of a string's or number's text
    std::uint32_t size;   // bytes of text; items or members
    std::uint32_t next;   // the node behind this one and all in it
    Json::Kind kind;
  };
  std::string prefix() const;  // of messages
  std::string_view text_of(const Node& node) const {
    return std::string_view(text_).substr(node.begin, node.size);
  }

  std::string text_;  // escapes of strings are resolved in place
  std::filesystem::path file_;
  std::vector<Node> nodes_;
};

}  // namespace quire
