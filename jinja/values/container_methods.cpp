// Methods of lists, tuples, dicts and numbers.

#include <algorithm>
#include <cmath>

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/filters/globals.h"
#include "jinja/values/arithmetic.h"
#include "jinja/values/dict.h"
#include "jinja/values/functions.h"
#include "jinja/values/methods.h"
#include "jinja/values/operators.h"
#include "jinja/values/range.h"
#include "jinja/values/repr.h"
#include "jinja/values/sequence.h"
#include "jinja/values/text_arguments.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

// dict.keys(), .values() and .items(): they see the dict, which never changes.
class DictView : public Object {
 public:
  enum class Shows : std::uint8_t { keys, values, items };
  DictView(Value dict, Shows shows) : dict_(std::move(dict)), shows_(shows) { contain(dict_); }
  std::string_view type_name() const override {
    return shows_ == Shows::keys     ? "dict_keys"
           : shows_ == Shows::values ? "dict_values"
                                     : "dict_items";
  }
  void append_repr(std::string& out, int depth) const override {
    List shown;
    for (std::size_t i = 0; i < dict_.dict().size(); ++i) shown.push_back(at(i));
    out.append(type_name()).append("(");
    quire::jinja::append_repr(out, Value(std::move(shown)), depth + 1);
    out += ")";
  }
  std::optional<std::size_t> length() const override { return dict_.dict().size(); }
  bool reversible() const override { return true; }
  std::unique_ptr<Iterator> iterate() override {
    struct ViewIterator : Iterator {
      explicit ViewIterator(const DictView& v) : view(v) {}
      bool next(Value& item) override {
        if (position == view.dict_.dict().size()) return false;
        item = view.at(position++);
        return true;
      }
      DictView view;
      std::size_t position = 0;
    };
    return std::make_unique<ViewIterator>(*this);
  }
  bool equals(const Object& other) const override {
    const auto* view = dynamic_cast<const DictView*>(&other);
    if (view == nullptr || view->shows_ != shows_ || shows_ == Shows::values) return this == &other;
    if (shows_ == Shows::items) return equal(dict_, view->dict_);
    const Dict& mine = dict_.dict();
    return mine.size() == view->dict_.dict().size() &&
           std::all_of(mine.begin(), mine.end(), [&](const auto& entry) {
             return view->dict_.dict().find(entry.key) != nullptr;
           });
  }

 private:
  Value at(std::size_t i) const {
    const Dict::Entry& entry = dict_.dict()[i];
    if (shows_ == Shows::keys) return entry.key;
    return shows_ == Shows::values ? entry.value : Value(Tuple{{entry.key, entry.value}});
  }

  Value dict_;
  Shows shows_;
};

Value index_in(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const List& given = positional("index", arguments, 1, 3);
  const SliceRange range = resolve(
      {given.size() > 1 ? given[1] : Value(), given.size() > 2 ? given[2] : Value(), Value()},
      std::int64_t(*length(self)));
  for (std::int64_t i = range.first; i < range.first + range.count; ++i) {
    evaluation.step();
    evaluation.charge(given[0].extent().weight);
    if (equal(subscript(self, Value(i)), given[0])) return Value(i);
  }
  fail(ErrorKind::value, repr(given[0]) + " is not in " + std::string(type_name(self)));
}

Value count_in(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const List& given = positional("count", arguments, 1, 1);
  std::int64_t count = 0;
  const auto items = iterate(self);
  for (Value item; items->next(item);) {
    evaluation.step();
    evaluation.charge(given[0].extent().weight);
    count += equal(item, given[0]);
  }
  return Value(count);
}

Value copy(Evaluation&, const Value& self, Arguments& arguments) {
  positional("copy", arguments, 0, 0);
  return self;  // nothing can change either
}

Value get(Evaluation&, const Value& self, Arguments& arguments) {
  const List& given = positional("get", arguments, 1, 2);
  const Value* found = self.dict().find(given[0]);
  if (found != nullptr) return *found;
  return given.size() > 1 ? given[1] : Value();
}

template <DictView::Shows shows>
Value view(Evaluation&, const Value& self, Arguments& arguments) {
  positional("view", arguments, 0, 0);
  return make_object<DictView>(self, shows);
}

Value fromkeys(Evaluation& evaluation, const Value&, Arguments& arguments) {
  return dict_fromkeys(evaluation, arguments);
}

Value bit_length(Evaluation&, const Value& self, Arguments& arguments) {
  positional("bit_length", arguments, 0, 0);
  BigInt rest = to_big(self);
  if (rest.negative()) rest = -rest;
  std::int64_t bits = 0;
  for (; !rest.zero(); ++bits) rest = BigInt::divide(rest, BigInt(2)).quotient;
  return Value(bits);
}

Value bit_count(Evaluation&, const Value& self, Arguments& arguments) {
  positional("bit_count", arguments, 0, 0);
  BigInt rest = to_big(self);
  if (rest.negative()) rest = -rest;
  std::int64_t bits = 0;
  while (!rest.zero()) {
    const BigInt::QuotientRemainder halves = BigInt::divide(rest, BigInt(2));
    bits += !halves.remainder.zero();
    rest = halves.quotient;
  }
  return Value(bits);
}

Value conjugate(Evaluation&, const Value& self, Arguments& arguments) {
  positional("conjugate", arguments, 0, 0);
  return positive(self);
}

Value is_integer(Evaluation&, const Value& self, Arguments& arguments) {
  positional("is_integer", arguments, 0, 0);
  return Value(std::isfinite(self.real()) && std::trunc(self.real()) == self.real());
}

}  // namespace

Method find_list_method(std::string_view name) {
  static constexpr NamedMethod kMethods[] = {
      {"index", index_in}, {"count", count_in}, {"copy", copy}};
  return find_in(kMethods, name);
}

Method find_tuple_method(std::string_view name) {
  static constexpr NamedMethod kMethods[] = {{"index", index_in}, {"count", count_in}};
  return find_in(kMethods, name);
}

Method find_dict_method(std::string_view name) {
  static constexpr NamedMethod kMethods[] = {{"get", get},
                                             {"items", view<DictView::Shows::items>},
                                             {"keys", view<DictView::Shows::keys>},
                                             {"values", view<DictView::Shows::values>},
                                             {"copy", copy},
                                             {"fromkeys", fromkeys}};
  return find_in(kMethods, name);
}

Method find_integer_method(std::string_view name) {
  static constexpr NamedMethod kMethods[] = {
      {"bit_length", bit_length}, {"bit_count", bit_count}, {"conjugate", conjugate}};
  return find_in(kMethods, name);
}

Method find_real_method(std::string_view name) {
  static constexpr NamedMethod kMethods[] = {{"is_integer", is_integer}, {"conjugate", conjugate}};
  return find_in(kMethods, name);
}

Method find_object_method(const Object& object, std::string_view name) {
  if (dynamic_cast<const Range*>(&object) == nullptr) return nullptr;
  return find_tuple_method(name);
}

Value number_attribute(const Value& number, std::string_view name) {
  const bool real = number.is(Kind::real);
  if (name == "real") return positive(number);
  if (name == "imag") return real ? Value(0.0) : Value(0);
  if (name == "numerator" && !real) return positive(number);
  return name == "denominator" && !real ? Value(1) : Value::missing();
}

Value dict_items(const Value& dict) { return make_object<DictView>(dict, DictView::Shows::items); }

}  // namespace quire::jinja
