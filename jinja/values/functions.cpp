#include "jinja/values/functions.h"

#include <algorithm>

#include "jinja/error.h"
#include "jinja/values/operators.h"

namespace quire::jinja {
namespace {

class FunctionObject : public Object {
 public:
  FunctionObject(std::string_view name, FunctionBody body) : name_(name), body_(std::move(body)) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  void append_repr(std::string& out, int) const override {
    out += "<built-in function " + name_ + ">";
  }
  bool callable() const override { return true; }
  Value call(Evaluation& evaluation, Arguments arguments) override {
    return body_(evaluation, arguments);
  }

 private:
  std::string name_;
  FunctionBody body_;
};

class Generator : public Object, public std::enable_shared_from_this<Generator> {
 public:
  Generator(std::unique_ptr<Iterator> items, const Value& source, std::string_view type_name)
      : items_(std::move(items)), type_name_(type_name) {
    contain(source);
  }
  std::string_view type_name() const override { return type_name_; }
  std::unique_ptr<Iterator> iterate() override {
    struct Shared : Iterator {
      explicit Shared(std::shared_ptr<Generator> g) : generator(std::move(g)) {}
      bool next(Value& item) override { return generator->items_->next(item); }
      std::shared_ptr<Generator> generator;
    };
    return std::make_unique<Shared>(shared_from_this());
  }

 private:
  std::unique_ptr<Iterator> items_;
  std::string type_name_;
};

[[noreturn]] void fail_call(std::string_view function, const std::string& problem) {
  fail(ErrorKind::type, std::string(function) + "() " + problem);
}

}  // namespace

Value Object::call(Evaluation&, Arguments) {
  fail(ErrorKind::type, "'" + std::string(type_name()) + "' object is not callable");
}

Value make_function(std::string_view name, FunctionBody body) {
  return make_object<FunctionObject>(name, std::move(body));
}

Value make_generator(std::unique_ptr<Iterator> items, const Value& source,
                     std::string_view type_name) {
  return make_object<Generator>(std::move(items), source, type_name);
}

List bind(std::string_view function, Arguments& arguments,
          std::initializer_list<std::string_view> parameters, std::size_t num_required) {
  if (arguments.positional.size() > parameters.size()) {
    fail_call(function, "takes at most " + std::to_string(parameters.size()) + " arguments but " +
                            std::to_string(arguments.positional.size()) + " were given");
  }
  List bound = std::move(arguments.positional);
  bound.resize(parameters.size(), Value::missing());
  for (auto& [name, value] : arguments.named) {
    const auto at =
        std::size_t(std::find(parameters.begin(), parameters.end(), name) - parameters.begin());
    if (at == parameters.size())
      fail_call(function, "got an unexpected keyword argument '" + name + "'");
    if (!bound[at].is(Value::Kind::missing))
      fail_call(function, "got multiple values for argument '" + name + "'");
    bound[at] = std::move(value);
  }
  for (std::size_t i = 0; i < num_required; ++i) {
    if (bound[i].is(Value::Kind::missing)) {
      fail_call(function, "missing 1 required positional argument: '" +
                              std::string(parameters.begin()[i]) + "'");
    }
  }
  return bound;
}

const List& positional(std::string_view function, const Arguments& arguments, std::size_t at_least,
                       std::size_t at_most) {
  if (!arguments.named.empty()) fail_call(function, "takes no keyword arguments");
  const std::size_t given = arguments.positional.size();
  if (given < at_least || given > at_most) {
    const bool too_few = given < at_least;
    fail(ErrorKind::type, std::string(function) + " expected at " + (too_few ? "least " : "most ") +
                              std::to_string(too_few ? at_least : at_most) + " arguments, got " +
                              std::to_string(given));
  }
  return arguments.positional;
}

}  // namespace quire::jinja
