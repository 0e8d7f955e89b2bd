#pragma once
// What a template computes with: Python's values, as far as templates can see them. Immutable and
// cheap to copy (contents are shared), so one Value may be read from many threads.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace quire::jinja {

class Value;
class Dict;
class BigInt;
class Object;  // what only an evaluation creates: ranges, iterators, macros, namespaces, functions
using List = std::vector<Value>;

struct Missing {  // a variable that was never set
  bool operator==(const Missing&) const = default;
};
struct None {
  bool operator==(const None&) const = default;
};

// What a missing name, attribute or element evaluates to; most uses of it are errors that say why.
struct Undefined {
  enum class Why : std::uint8_t {
    variable,
    attribute,
    element,  // has never been set or is not there
    unsafe,   // exists in Python, but the sandbox hides it
    other,    // as `name` says
  };
  Why why = Why::variable;
  std::string name;
  std::string owner;  // type that was asked
  std::string message() const;
};

struct Text {
  Text(std::string text, bool is_safe) : utf8(std::move(text)), safe(is_safe) {}
  const std::string utf8;
  const bool safe;             // Markup: already escaped for HTML
  std::size_t length() const;  // code points; counted when first asked for

 private:
  static constexpr std::size_t kUncounted = SIZE_MAX;
  mutable std::atomic<std::size_t> length_{kUncounted};
};

struct Tuple {
  List items;
  bool is_group = false;  // what groupby gives: also has .grouper and .list
};

constexpr int kMaxNesting = 256;  // of lists in lists; more is refused as endless recursion

// How deep a value's containers nest, and what walking all of it costs, in bytes or so (shared
// parts count each time).
struct Extent {
  int nesting = 0;
  std::uint64_t weight = 1;
  void contain(const Extent& part);  // fails beyond kMaxNesting
};

struct ListBox {
  explicit ListBox(List list);
  List items;
  Extent extent;
};

struct TupleBox {
  explicit TupleBox(Tuple tuple);
  Tuple tuple;
  Extent extent;
};

class Value {
 public:
  enum class Kind : std::uint8_t {
    missing,
    undefined,
    none,
    boolean,
    integer,
    big_integer,
    real,
    string,
    list,
    tuple,
    dict,
    object
  };

  Value() : data_(None{}) {}
  explicit Value(bool value) : data_(value) {}
  explicit Value(int value) : data_(std::int64_t{value}) {}
  explicit Value(std::int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(std::string text, bool safe = false);  // valid UTF-8
  explicit Value(std::string_view text) : Value(std::string(text)) {}
  explicit Value(const char* text) : Value(std::string(text)) {}
  explicit Value(List items);
  explicit Value(Tuple items);
  explicit Value(Dict entries);
  explicit Value(BigInt value);  // becomes an integer where it fits
  explicit Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  static Value missing();
  static Value undefined(Undefined why);
  static Value undefined(std::string reason) {
    return undefined({Undefined::Why::other, std::move(reason), {}});
  }

  Kind kind() const { return Kind(data_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_none() const { return is(Kind::none); }
  bool is_string() const { return is(Kind::string); }

  // Each may only be asked of a value of that kind.
  bool boolean() const { return std::get<bool>(data_); }
  std::int64_t integer() const { return std::get<std::int64_t>(data_); }
  double real() const { return std::get<double>(data_); }
  const BigInt& big_integer() const { return *std::get<BigIntRef>(data_); }
  const Text& text() const { return *std::get<TextRef>(data_); }
  const std::string& string() const { return text().utf8; }
  const List& list() const { return std::get<ListRef>(data_)->items; }
  const Tuple& tuple() const { return std::get<TupleRef>(data_)->tuple; }
  const Dict& dict() const { return *std::get<DictRef>(data_); }
  const Undefined& why_undefined() const { return *std::get<UndefinedRef>(data_); }
  const std::shared_ptr<Object>& object() const { return std::get<std::shared_ptr<Object>>(data_); }

  // The items of a list or tuple.
  const List& items() const { return is(Kind::list) ? list() : tuple().items; }
  bool is_sequence() const { return is(Kind::list) || is(Kind::tuple); }
  bool is_undefined() const { return is(Kind::undefined); }

  // Python's `is`: the same object, or the same small thing.
  bool same_as(const Value& other) const;
  Extent extent() const;

 private:
  using UndefinedRef = std::shared_ptr<const Undefined>;
  using BigIntRef = std::shared_ptr<const BigInt>;
  using TextRef = std::shared_ptr<const Text>;
  using ListRef = std::shared_ptr<const ListBox>;
  using TupleRef = std::shared_ptr<const TupleBox>;
  using DictRef = std::shared_ptr<const Dict>;
  // In the order of Kind.
  std::variant<Missing, UndefinedRef, None, bool, std::int64_t, BigIntRef, double, TextRef, ListRef,
               TupleRef, DictRef, std::shared_ptr<Object>>
      data_;
};

// Reads one JSON text as Python's json.loads does (the last of equal keys wins, integers of any
// size); throws Failure (invalid_argument) naming what is wrong and where.
Value parse_json(std::string_view json);

}  // namespace quire::jinja
