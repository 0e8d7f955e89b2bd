#pragma once
// What is neither JSON nor undefined: each kind of object overrides what it can do.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/values/value.h"

namespace quire::jinja {

class Evaluation;
struct Slice;

// The arguments of a call, in Python's two sorts.
struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Python's iterator protocol; iterators of one generator share its position.
class Iterator {
 public:
  virtual ~Iterator() = default;
  virtual bool next(Value& item) = 0;  // false at the end
};

class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual void append_repr(std::string& out, int depth) const;  // "<range object>" and the like
  virtual bool truthy() const { return !length() || *length() > 0; }
  virtual std::optional<std::size_t> length() const { return {}; }
  virtual std::unique_ptr<Iterator> iterate() { return nullptr; }  // null: not iterable
  virtual bool reversible() const { return false; }
  // self[key]; missing where Python raises TypeError or LookupError.
  virtual Value item(const Value&) const { return Value::missing(); }
  virtual Value slice(const Slice&) const { return Value::missing(); }
  virtual bool has_items() const { return false; }  // __getitem__ exists
  // A plain attribute that templates may read; missing where there is none.
  virtual Value attribute(std::string_view) { return Value::missing(); }
  virtual bool callable() const { return false; }
  virtual Value call(Evaluation& evaluation, Arguments arguments);
  virtual bool equals(const Object& other) const { return this == &other; }
  virtual std::optional<bool> contains(const Value&) const {
    return {};
  }                        // empty: look at the items
  virtual void clear() {}  // lets go of what may refer back to this
  const Extent& extent() const { return extent_; }

 protected:
  void contain(const Value& value) { extent_.contain(value.extent()); }

 private:
  Extent extent_;
};

template <class T, class... Args>
Value make_object(Args&&... args) {
  return Value(std::shared_ptr<Object>(std::make_shared<T>(std::forward<Args>(args)...)));
}

template <class T>
T* object_as(const Value& value) {
  return value.is(Value::Kind::object) ? dynamic_cast<T*>(value.object().get()) : nullptr;
}

}  // namespace quire::jinja
