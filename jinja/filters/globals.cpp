#include "jinja/filters/globals.h"

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/values/arithmetic.h"
#include "jinja/values/functions.h"
#include "jinja/values/operators.h"
#include "jinja/values/range.h"
#include "jinja/values/repr.h"
#include "jinja/values/sequence.h"
#include "jinja/values/strftime.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

// range, dict, namespace, cycler, joiner: types that templates call.
class TypeObject : public Object {
 public:
  TypeObject(std::string name, FunctionBody make)
      : name_(std::move(name)), make_(std::move(make)) {}
  std::string_view type_name() const override { return "type"; }
  void append_repr(std::string& out, int) const override { out += "<class '" + name_ + "'>"; }
  bool callable() const override { return true; }
  Value attribute(std::string_view name) override;
  Value call(Evaluation& evaluation, Arguments arguments) override {
    return make_(evaluation, arguments);
  }

 private:
  std::string name_;
  FunctionBody make_;
};

class Cycler : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(List items) : items_(std::move(items)) {
    for (const Value& item : items_) contain(item);
  }
  std::string_view type_name() const override { return "Cycler"; }
  Value attribute(std::string_view name) override {
    if (name == "current") return items_[position_];
    if (name == "items") return Value(Tuple{items_});
    if (name == "pos") return Value(std::int64_t(position_));
    if (name == "next") {
      return make_function(
          "next", [self = shared_from_this()](Evaluation&, Arguments&) { return self->next(); });
    }
    if (name != "reset") return Value::missing();
    return make_function("reset", [self = shared_from_this()](Evaluation&, Arguments&) {
      self->position_ = 0;
      return Value();
    });
  }

 private:
  Value next() {
    const Value item = items_[position_];
    position_ = (position_ + 1) % items_.size();
    return item;
  }

  List items_;
  std::size_t position_ = 0;
};

class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) { contain(separator_); }
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value attribute(std::string_view name) override {
    if (name == "sep") return separator_;
    return name == "used" ? Value(used_) : Value::missing();
  }
  Value call(Evaluation&, Arguments) override {
    const bool first = !used_;
    used_ = true;
    return first ? Value("") : separator_;
  }

 private:
  Value separator_;
  bool used_ = false;
};

Value make_range(Evaluation&, Arguments& arguments) {
  const List& given = positional("range", arguments, 1, 3);
  const std::int64_t first = as_index(given[0]);
  const std::int64_t start = given.size() > 1 ? first : 0;
  const std::int64_t stop = given.size() > 1 ? as_index(given[1]) : first;
  const std::int64_t step = given.size() > 2 ? as_index(given[2]) : 1;
  if (step == 0) fail(ErrorKind::value, "range() arg 3 must not be zero");
  Value range = make_object<Range>(start, stop, step);
  if (*length(range) > std::size_t(kMaxRange)) {
    fail(ErrorKind::overflow, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
                                  std::to_string(kMaxRange) + ").");
  }
  return range;
}

// dict(mapping or pairs, **named)
Dict dict_of(Evaluation& evaluation, Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    fail(ErrorKind::type,
         "dict expected at most 1 argument, got " + std::to_string(arguments.positional.size()));
  }
  Dict dict;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::dict)) {
      dict = source.dict();
    } else {
      const auto pairs = iterate(source);
      for (Value pair; pairs->next(pair);) {
        evaluation.step();
        const List entry = collect(evaluation, pair);
        if (entry.size() != 2) {
          fail(ErrorKind::value, "dictionary update sequence element #" +
                                     std::to_string(dict.size()) + " has length " +
                                     std::to_string(entry.size()) + "; 2 is required");
        }
        dict.set(entry[0], entry[1]);
      }
    }
  }
  for (auto& [name, value] : arguments.named) dict.set(name, std::move(value));
  evaluation.charge(dict.size() * sizeof(Dict::Entry));
  return dict;
}

void check_attribute_name(std::string_view name) {
  if (name.starts_with('_')) {
    fail(ErrorKind::security,
         "namespace attributes may not begin with an underscore: '" + std::string(name) + "'");
  }
}

Value make_namespace(Evaluation& evaluation, Arguments& arguments) {
  Dict attributes = dict_of(evaluation, arguments);
  for (const auto& [key, value] : attributes) {
    if (key.is_string()) check_attribute_name(key.string());
  }
  auto object = std::make_shared<Namespace>(std::move(attributes));
  evaluation.keep(object);
  return Value(std::shared_ptr<Object>(std::move(object)));
}

Value make_cycler(Evaluation&, Arguments& arguments) {
  const List& items = positional("cycler", arguments, 0, SIZE_MAX);
  if (items.empty()) fail(ErrorKind::runtime, "at least one item has to be provided");
  return make_object<Cycler>(items);
}

Value make_joiner(Evaluation&, Arguments& arguments) {
  const List bound = bind("joiner", arguments, {"sep"}, 0);
  return make_object<Joiner>(bound[0].is(Kind::missing) ? Value(", ") : bound[0]);
}

Value raise_exception(Evaluation&, Arguments& arguments) {
  fail(ErrorKind::raised, to_text(bind("raise_exception", arguments, {"message"}, 1)[0]));
}

Value strftime_now(Evaluation& evaluation, Arguments& arguments) {
  const List bound = bind("strftime_now", arguments, {"format"}, 1);
  if (!bound[0].is_string()) {
    fail(ErrorKind::type,
         "strftime() argument 1 must be str, not " + std::string(type_name(bound[0])));
  }
  evaluation.charge(8 * bound[0].string().size());
  return evaluation.text(format_time(bound[0].string(), evaluation.now()));
}

// Filler text in jinja2; ours is the same words every time.
Value lipsum(Evaluation& evaluation, Arguments& arguments) {
  const List bound = bind("generate_lorem_ipsum", arguments, {"n", "html", "min", "max"}, 0);
  const std::int64_t paragraphs = bound[0].is(Kind::missing) ? 5 : as_index(bound[0]);
  const bool html = bound[1].is(Kind::missing) || truthy(bound[1]);
  const std::string words = "Lorem ipsum dolor sit amet consectetuer adipiscing elit.";
  std::string text;
  for (std::int64_t i = 0; i < paragraphs; ++i) {
    evaluation.charge_text(words.size() + 8);
    if (!text.empty()) text += html ? "\n" : "\n\n";
    text += html ? "<p>" + words + "</p>" : words;
  }
  return Value(std::move(text), html);
}

Value TypeObject::attribute(std::string_view name) {
  if (name != "fromkeys" || name_ != "dict") return Value::missing();
  return make_function("fromkeys", dict_fromkeys);
}

}  // namespace

Value dict_fromkeys(Evaluation& evaluation, Arguments& arguments) {
  const List& given = positional("fromkeys", arguments, 1, 2);
  Dict dict;
  for (Value& key : collect(evaluation, given[0]))
    dict.set(std::move(key), given.size() > 1 ? given[1] : Value());
  return Value(std::move(dict));
}

void Namespace::append_repr(std::string& out, int depth) const {
  out += "<Namespace ";
  quire::jinja::append_repr(out, Value(attributes_), depth + 1);
  out += ">";
}

Value Namespace::attribute(std::string_view name) {
  const Value* found = attributes_.find(name);
  return found == nullptr ? Value::missing() : *found;
}

void Namespace::set(Evaluation& evaluation, std::string_view name, Value value) {
  check_attribute_name(name);
  evaluation.charge(sizeof(Dict::Entry));
  attributes_.set(name, std::move(value));
}

const Dict& global_names() {
  static const Dict names = [] {
    Dict dict;
    const auto add_type = [&](std::string_view name, std::string class_name, FunctionBody make) {
      dict.set(name, make_object<TypeObject>(std::move(class_name), std::move(make)));
    };
    add_type("dict", "dict", [](Evaluation& e, Arguments& a) { return Value(dict_of(e, a)); });
    add_type("namespace", "jinja2.utils.Namespace", make_namespace);
    add_type("cycler", "jinja2.utils.Cycler", make_cycler);
    add_type("joiner", "jinja2.utils.Joiner", make_joiner);
    dict.set("range", make_function("safe_range", make_range));
    dict.set("lipsum", make_function("generate_lorem_ipsum", lipsum));
    dict.set("raise_exception", make_function("raise_exception", raise_exception));
    dict.set("strftime_now", make_function("strftime_now", strftime_now));
    return dict;
  }();
  return names;
}

}  // namespace quire::jinja
