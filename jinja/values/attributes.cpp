#include "jinja/values/attributes.h"

#include <algorithm>
#include <array>
#include <optional>

#include "jinja/error.h"
#include "jinja/values/functions.h"
#include "jinja/values/methods.h"
#include "jinja/values/operators.h"
#include "jinja/values/repr.h"
#include "jinja/values/sequence.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

template <std::size_t n>
bool is_one_of(std::string_view name, const std::array<std::string_view, n>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_any(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool changes_its_object(const Value& self, std::string_view name) {
  if (self.is(Kind::list)) {
    return is_any(name,
                  {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"});
  }
  return self.is(Kind::dict) && is_any(name, {"clear", "pop", "popitem", "setdefault", "update"});
}

constexpr std::array<std::string_view, 24> kEveryObject = {
    "__class__",   "__delattr__", "__dir__",           "__doc__",         "__eq__",
    "__format__",  "__ge__",      "__getattribute__",  "__getstate__",    "__gt__",
    "__hash__",    "__init__",    "__init_subclass__", "__le__",          "__lt__",
    "__ne__",      "__new__",     "__reduce__",        "__reduce_ex__",   "__repr__",
    "__setattr__", "__sizeof__",  "__str__",           "__subclasshook__"};
constexpr std::array<std::string_view, 14> kContainers = {
    "__add__",      "__contains__", "__getitem__", "__getnewargs__",    "__iter__",
    "__len__",      "__mul__",      "__rmul__",    "__class_getitem__", "__delitem__",
    "__reversed__", "__setitem__",  "__iadd__",    "__imul__"};
constexpr std::array<std::string_view, 30> kNumbers = {
    "__abs__",   "__add__",      "__bool__",       "__ceil__",  "__divmod__",  "__float__",
    "__floor__", "__floordiv__", "__getnewargs__", "__int__",   "__mod__",     "__mul__",
    "__neg__",   "__pos__",      "__pow__",        "__radd__",  "__rdivmod__", "__rfloordiv__",
    "__rmod__",  "__rmul__",     "__round__",      "__rpow__",  "__rsub__",    "__rtruediv__",
    "__sub__",   "__truediv__",  "__trunc__",      "__index__", "__and__",     "__or__"};
constexpr std::array<std::string_view, 6> kFunctions = {
    "__call__", "__module__", "__name__", "__self__", "__qualname__", "__text_signature__"};

constexpr std::array<std::string_view, 6> kPythonClasses = {
    "TemplateReference", "BlockReference", "Macro", "LoopContext", "Cycler", "Joiner"};

// Names with two underscores that Python's type has, all of which the sandbox hides.
bool has_internal(const Value& self, std::string_view name) {
  if (!name.starts_with("__")) return false;
  if (self.is(Kind::object) && self.object()->type_name() == "Namespace")
    return name == "__class__";
  if (is_one_of(name, kEveryObject)) return true;
  if (self.is(Kind::object) && is_one_of(self.object()->type_name(), kPythonClasses)) {
    if (is_any(name, {"__dict__", "__module__", "__weakref__"})) return true;
  }
  if (is_number(self)) return is_one_of(name, kNumbers);
  if (self.is_string() && name == "__html__") return self.text().safe;
  if (self.is_undefined())
    return is_one_of(name, kNumbers) || is_any(name, {"__call__", "__len__", "__iter__"});
  if (is_callable(self)) return is_one_of(name, kFunctions);
  return length(self).has_value() && is_one_of(name, kContainers);
}

class BoundMethod : public Object {
 public:
  BoundMethod(Value self, std::string name, Method method)
      : self_(std::move(self)), name_(std::move(name)), method_(method) {
    contain(self_);
  }
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  void append_repr(std::string& out, int) const override {
    out += "<built-in method " + name_ + " of " + std::string(quire::jinja::type_name(self_)) +
           " object>";
  }
  bool callable() const override { return true; }
  Value call(Evaluation& evaluation, Arguments arguments) override {
    return method_(evaluation, self_, arguments);
  }

 private:
  Value self_;
  std::string name_;
  Method method_;
};

Value unsafe(const Value& object, std::string_view name) {
  return Value::undefined(
      {Undefined::Why::unsafe, std::string(name), std::string(type_name(object))});
}

// What Python's getattr finds, as the sandbox shows it; missing where it finds nothing.
Value find_attribute(const Value& object, std::string_view name) {
  if (const Method method = find_method(object, name))
    return make_object<BoundMethod>(object, std::string(name), method);
  if (changes_its_object(object, name) || has_internal(object, name)) return unsafe(object, name);
  if (object.is(Kind::object)) {
    Value value = object.object()->attribute(name);
    return !value.is(Kind::missing) && name.starts_with('_') ? unsafe(object, name) : value;
  }
  if (is_number(object)) return number_attribute(object, name);
  if (object.is(Kind::tuple) && object.tuple().is_group) {
    if (name == "grouper") return object.tuple().items[0];
    if (name == "list") return object.tuple().items[1];
  }
  return Value::missing();
}

Value absent(const Value& object, const Value& key) {
  const std::string owner(type_name(object));
  if (key.is_string()) return Value::undefined({Undefined::Why::attribute, key.string(), owner});
  return Value::undefined({Undefined::Why::element, repr(key), owner});
}

}  // namespace

Value get_attribute(Evaluation&, const Value& object, const Value& name) {
  if (object.is_undefined() && !has_internal(object, name.string())) fail_undefined(object);
  Value value = find_attribute(object, name.string());
  if (!value.is(Kind::missing)) return value;
  value = subscript(object, name);
  return value.is(Kind::missing) ? absent(object, name) : value;
}

Value get_item(Evaluation&, const Value& object, const Value& key) {
  Value value = subscript(object, key);
  if (!value.is(Kind::missing)) return value;
  if (key.is_string()) value = find_attribute(object, key.string());
  return value.is(Kind::missing) ? absent(object, key) : value;
}

bool has_attribute(const Value& object, std::string_view name) {
  return object.is_undefined() ? has_internal(object, name)
                               : !find_attribute(object, name).is(Kind::missing);
}

Value call_value(Evaluation& evaluation, const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) fail_undefined(callee);
  if (callee.is(Kind::object)) return callee.object()->call(evaluation, std::move(arguments));
  fail(ErrorKind::type, "'" + std::string(type_name(callee)) + "' object is not callable");
}

bool is_callable(const Value& value) {
  return value.is_undefined() || (value.is(Kind::object) && value.object()->callable());
}

Method find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::string:
      return find_text_method(name);
    case Kind::list:
      return find_list_method(name);
    case Kind::tuple:
      return find_tuple_method(name);
    case Kind::dict:
      return find_dict_method(name);
    case Kind::boolean:
    case Kind::integer:
    case Kind::big_integer:
      return find_integer_method(name);
    case Kind::real:
      return find_real_method(name);
    case Kind::object:
      return find_object_method(*self.object(), name);
    default:
      return nullptr;
  }
}

}  // namespace quire::jinja
