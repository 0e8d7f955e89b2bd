#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/syntax/statements.h"

namespace quire::jinja {
namespace {

class Macro : public Object {
 public:
  Macro(const MacroBody& body, Activation* outer, std::string name)
      : body_(body), outer_(outer), name_(std::move(name)) {}
  std::string_view type_name() const override { return "Macro"; }
  void append_repr(std::string& out, int) const override {
    out += name_.empty() ? "<Macro anonymous>" : "<Macro '" + name_ + "'>";
  }
  bool callable() const override { return true; }
  Value attribute(std::string_view name) override;
  Value call(Evaluation& evaluation, Arguments arguments) override;

 private:
  void bind_parameters(Arguments& arguments, Activation* locals) const;
  void bind_caller(Arguments& arguments, Activation* locals, bool found_caller) const;
  void fill_defaults(Frame& frame) const;

  const MacroBody& body_;
  Activation* outer_;  // kept by the evaluation, since it is captured
  std::string name_;
};

Value Macro::attribute(std::string_view name) {
  if (name == "name") return name_.empty() ? Value() : Value(name_);
  if (name == "catch_kwargs") return Value(body_.kwargs_slot >= 0);
  if (name == "catch_varargs") return Value(body_.varargs_slot >= 0);
  if (name == "caller") return Value(body_.takes_caller);
  List names;
  for (const auto& parameter : body_.parameters) names.emplace_back(parameter->name);
  if (name == "explicit_caller") {
    return Value(std::any_of(names.begin(), names.end(),
                             [](const Value& n) { return n.string() == "caller"; }));
  }
  return name == "arguments" ? Value(Tuple{std::move(names)}) : Value::missing();
}

// Takes the named argument out of `arguments`.
std::optional<Value> take_named(Arguments& arguments, std::string_view name) {
  for (auto it = arguments.named.begin(); it != arguments.named.end(); ++it) {
    if (it->first != name) continue;
    Value value = std::move(it->second);
    arguments.named.erase(it);
    return value;
  }
  return {};
}

void Macro::bind_parameters(Arguments& arguments, Activation* locals) const {
  const std::size_t num_parameters = body_.parameters.size();
  const std::size_t given = std::min(arguments.positional.size(), num_parameters);
  bool found_caller = false;
  for (std::size_t i = 0; i < num_parameters; ++i) {
    const NameExpr& parameter = *body_.parameters[i];
    Value& slot = locals->slots[std::size_t(parameter.slot.index)];
    found_caller =
        found_caller || (parameter.name == "caller" && (i >= given || given == num_parameters));
    slot = i < given ? arguments.positional[i]
                     : take_named(arguments, parameter.name).value_or(Value::missing());
  }
  bind_caller(arguments, locals, found_caller);
  if (body_.kwargs_slot >= 0) {
    locals->slots[std::size_t(body_.kwargs_slot)] = Value(Dict(std::move(arguments.named)));
  } else if (!arguments.named.empty()) {
    const std::string& extra = arguments.named.front().first;
    if (take_named(arguments, "caller")) {
      fail(ErrorKind::type, "macro '" + name_ +
                                "' was invoked with two values for the special caller argument. "
                                "This is most likely a bug.");
    }
    fail(ErrorKind::type, "macro '" + name_ + "' takes no keyword argument '" + extra + "'");
  }
  if (body_.varargs_slot >= 0) {
    List rest(arguments.positional.begin() + std::ptrdiff_t(given), arguments.positional.end());
    locals->slots[std::size_t(body_.varargs_slot)] = Value(Tuple{std::move(rest)});
  } else if (arguments.positional.size() > num_parameters) {
    fail(ErrorKind::type, "macro '" + name_ + "' takes not more than " +
                              std::to_string(num_parameters) + " argument(s)");
  }
}

void Macro::bind_caller(Arguments& arguments, Activation* locals, bool found_caller) const {
  if (!body_.takes_caller || found_caller || body_.caller_slot < 0) return;
  Value caller = take_named(arguments, "caller").value_or(Value());
  if (caller.is_none()) caller = Value::undefined("No caller defined");
  locals->slots[std::size_t(body_.caller_slot)] = std::move(caller);
}

// Defaults see the parameters before them.
void Macro::fill_defaults(Frame& frame) const {
  const std::size_t num_required = body_.parameters.size() - body_.defaults.size();
  for (std::size_t i = 0; i < body_.parameters.size(); ++i) {
    const NameExpr& parameter = *body_.parameters[i];
    if (!variable(frame.locals, parameter.slot).is(Value::Kind::missing)) continue;
    Value value = i >= num_required
                      ? body_.defaults[i - num_required]->evaluate(frame)
                      : Value::undefined("parameter '" + parameter.name + "' was not provided");
    variable(frame.locals, parameter.slot) = std::move(value);
  }
}

Value Macro::call(Evaluation& evaluation, Arguments arguments) {
  const RunningFunction running(evaluation, outer_, body_.own);
  bind_parameters(arguments, running.locals());
  std::string text;
  Frame frame{evaluation, running.locals(), &text};
  body_.scope.enter(evaluation, running.locals());
  fill_defaults(frame);
  const int line = evaluation.line;
  run(body_.body, frame);
  evaluation.line = line;
  return evaluation.text(std::move(text), evaluation.autoescape);
}

}  // namespace

Value make_macro(Frame& frame, const MacroBody& body, const std::string& name) {
  frame.evaluation.charge(sizeof(Macro));
  frame.locals->captured = true;
  return make_object<Macro>(body, frame.locals, name);
}

}  // namespace quire::jinja
