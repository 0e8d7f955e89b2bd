// Filters on sequences that look at or put together what is there.

#include <algorithm>
#include <random>

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/filters/filter_functions.h"
#include "jinja/values/arithmetic.h"
#include "jinja/values/attributes.h"
#include "jinja/values/dict.h"
#include "jinja/values/markup.h"
#include "jinja/values/methods.h"
#include "jinja/values/repr.h"
#include "jinja/values/sequence.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

Value default_filter(Evaluation&, const Value& subject, Arguments& arguments) {
  const List bound = bind("default", arguments, {"default_value", "boolean"}, 0);
  const bool replaced = subject.is_undefined() || (flag(bound, 1) && !truthy(subject));
  if (!replaced) return subject;
  return is_given(bound[0]) ? bound[0] : Value("");
}

Value attr(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("attr", arguments, {"name"}, 1);
  if (!bound[0].is_string()) fail(ErrorKind::type, "attribute name must be string");
  if (subject.is_undefined() || has_attribute(subject, bound[0].string())) {
    return get_attribute(evaluation, subject, bound[0]);
  }
  return Value::undefined(
      {Undefined::Why::attribute, bound[0].string(), std::string(type_name(subject))});
}

Value length_filter(Evaluation&, const Value& subject, Arguments& arguments) {
  bind("len", arguments, {}, 0);
  return Value(std::int64_t(required_length(subject)));
}

Value list_filter(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  bind("list", arguments, {}, 0);
  return Value(collect(evaluation, subject));
}

Value first(Evaluation&, const Value& subject, Arguments& arguments) {
  bind("first", arguments, {}, 0);
  Value item;
  return iterate(subject)->next(item) ? item
                                      : Value::undefined("No first item, sequence was empty.");
}

bool is_reversible(const Value& value) {
  if (value.is(Kind::object)) return value.object()->reversible();
  return length(value).has_value();
}

// The items from the last to the first; only for what Python's reversed() takes.
List reversed_items(Evaluation& evaluation, const Value& value) {
  List items = collect(evaluation, value);
  std::reverse(items.begin(), items.end());
  return items;
}

Value last(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  bind("last", arguments, {}, 0);
  if (!is_reversible(subject)) {
    fail(ErrorKind::type, "'" + std::string(type_name(subject)) + "' object is not reversible");
  }
  if (*length(subject) == 0) return Value::undefined("No last item, sequence was empty.");
  const Value item = subject.is(Kind::dict) ? subject.dict()[subject.dict().size() - 1].key
                                            : subscript(subject, Value(-1));
  return item.is(Kind::missing) ? reversed_items(evaluation, subject).front() : item;
}

Value reverse(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  bind("reverse", arguments, {}, 0);
  if (subject.is_string()) return slice(evaluation, subject, {Value(), Value(), Value(-1)});
  if (!try_iterate(subject)) fail(ErrorKind::runtime, "argument must be iterable");
  Value items(reversed_items(evaluation, subject));
  return is_reversible(subject) ? make_generator(iterate(items), items, "list_reverseiterator")
                                : items;
}

Value random_filter(Evaluation&, const Value& subject, Arguments& arguments) {
  bind("random", arguments, {}, 0);
  const std::size_t size = required_length(subject);
  if (size == 0) return Value::undefined("No random item, sequence was empty.");
  const std::size_t chosen = std::random_device{}() % size;
  const Value item = subscript(subject, Value(std::int64_t(chosen)));
  if (item.is(Kind::missing)) fail(ErrorKind::lookup, std::to_string(chosen));
  return item;
}

Value join_escaped(Evaluation& evaluation, const List& items, const Value& separator) {
  const bool any_safe = is_safe(separator) || std::any_of(items.begin(), items.end(), is_safe);
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += any_safe ? escape(separator).string() : to_text(separator);
    out += any_safe ? escape(items[i]).string() : to_text(items[i]);
    evaluation.charge_text(out.size());
  }
  return Value(std::move(out), any_safe);
}

Value join(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("join", arguments, {"d", "attribute"}, 0);
  const Getter getter = attribute_getter(evaluation, bound[1]);
  const Value separator = is_given(bound[0]) ? bound[0] : Value("");
  if (evaluation.autoescape) {
    List items = collect(evaluation, subject);
    for (Value& item : items) item = getter(item);
    return join_escaped(evaluation, items, separator);
  }
  const std::string between = to_text(separator);
  std::string out;
  bool is_first = true;
  const auto items = iterate(subject);
  for (Value item; items->next(item);) {
    evaluation.step();
    if (!is_first) out += between;
    is_first = false;
    const std::size_t before = out.size();
    append_text(out, getter(item));
    evaluation.charge_text(out.size() - before + between.size());
  }
  return evaluation.text(std::move(out));
}

// Not iterable things fail when the items are asked for.
class PendingItems : public Iterator {
 public:
  explicit PendingItems(Value source) : source_(std::move(source)) {}
  bool next(Value& item) override {
    if (!items_) {
      if (!source_.is(Kind::dict)) fail(ErrorKind::type, "Can only get item pairs from a mapping.");
      items_ = iterate(dict_items(source_));
    }
    return items_->next(item);
  }

 private:
  Value source_;
  std::unique_ptr<Iterator> items_;
};

Value items(Evaluation&, const Value& subject, Arguments& arguments) {
  bind("items", arguments, {}, 0);
  if (subject.is_undefined()) return make_generator(iterate(subject), subject);
  return make_generator(std::make_unique<PendingItems>(subject), subject);
}

constexpr NamedFilter kFilters[] = {{"default", default_filter},
                                    {"d", default_filter},
                                    {"attr", attr},
                                    {"length", length_filter},
                                    {"count", length_filter},
                                    {"list", list_filter},
                                    {"first", first},
                                    {"last", last},
                                    {"reverse", reverse},
                                    {"random", random_filter},
                                    {"join", join},
                                    {"items", items}};

}  // namespace

FilterTable sequence_filters() { return {kFilters, std::size(kFilters)}; }

}  // namespace quire::jinja
