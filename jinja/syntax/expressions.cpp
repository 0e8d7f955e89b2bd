#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/filters/globals.h"
#include "jinja/syntax/ast.h"
#include "jinja/values/attributes.h"
#include "jinja/values/dict.h"
#include "jinja/values/markup.h"
#include "jinja/values/repr.h"
#include "jinja/values/sequence.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

bool equal_charged(Evaluation& evaluation, const Value& a, const Value& b) {
  evaluation.charge(std::min(a.extent().weight, b.extent().weight));
  return equal(a, b);
}

bool compare(Evaluation& evaluation, CompareExpr::Op op, const Value& a, const Value& b) {
  using Op = CompareExpr::Op;
  switch (op) {
    case Op::equal:
      return equal_charged(evaluation, a, b);
    case Op::not_equal:
      return !equal_charged(evaluation, a, b);
    case Op::in:
      return contains(evaluation, b, a);
    case Op::not_in:
      return !contains(evaluation, b, a);
    default:
      break;
  }
  evaluation.charge(std::min(a.extent().weight, b.extent().weight));
  return ordered(Order(int(op) - int(Op::less)), a, b);
}

}  // namespace

Value NameExpr::evaluate(Frame& frame) const {
  const Value& value = variable(frame.locals, slot);
  return value.is(Kind::missing) ? Value::undefined({Undefined::Why::variable, name, {}}) : value;
}

void NameExpr::assign(Frame& frame, Value value) const {
  variable(frame.locals, slot) = std::move(value);
}

void NamespaceTarget::assign(Frame& frame, Value value) const {
  auto* target = object_as<Namespace>(variable(frame.locals, slot));
  if (target == nullptr) fail(ErrorKind::type, "only a namespace supports item assignment");
  target->set(frame.evaluation, attribute, std::move(value));
}

Value ItemsExpr::evaluate(Frame& frame) const {
  List values;
  values.reserve(items.size());
  frame.evaluation.charge(items.size() * sizeof(Value));
  for (const ExprPtr& item : items) values.push_back(item->evaluate(frame));
  return is_tuple ? Value(Tuple{std::move(values)}) : Value(std::move(values));
}

bool ItemsExpr::can_assign() const {
  return is_tuple && std::all_of(items.begin(), items.end(),
                                 [](const ExprPtr& item) { return item->can_assign(); });
}

void ItemsExpr::assign(Frame& frame, Value value) const {
  const auto source = try_iterate(value);
  if (!source)
    fail(ErrorKind::type,
         "cannot unpack non-iterable " + std::string(type_name(value)) + " object");
  List parts;
  for (Value part; parts.size() <= items.size() && source->next(part);)
    parts.push_back(std::move(part));
  const std::string expected = std::to_string(items.size());
  if (parts.size() > items.size())
    fail(ErrorKind::value, "too many values to unpack (expected " + expected + ")");
  if (parts.size() < items.size()) {
    fail(ErrorKind::value, "not enough values to unpack (expected " + expected + ", got " +
                               std::to_string(parts.size()) + ")");
  }
  for (std::size_t i = 0; i < items.size(); ++i) items[i]->assign(frame, std::move(parts[i]));
}

Value DictExpr::evaluate(Frame& frame) const {
  Dict dict;
  frame.evaluation.charge(entries.size() * sizeof(Dict::Entry));
  for (const auto& [key, value] : entries) {
    Value name = key->evaluate(frame);
    dict.set(std::move(name), value->evaluate(frame));
  }
  return Value(std::move(dict));
}

Value UnaryExpr::evaluate(Frame& frame) const {
  const Value value = operand->evaluate(frame);
  if (op == '!') return Value(!truthy(value));
  return op == '-' ? negate(value) : positive(value);
}

namespace {

bool is_plain_text(const Value& value) { return value.is_string() && !value.text().safe; }

// a + b + c … from the left, in one growing text for as long as all of them are texts.
Value sum_of(Frame& frame, const std::vector<const BinaryExpr*>& sums) {
  Value sum = sums.back()->left->evaluate(frame);
  std::string text;
  bool is_growing = false;
  for (auto next = sums.rbegin(); next != sums.rend(); ++next) {
    Value part = (*next)->right->evaluate(frame);
    if (is_plain_text(part) && (is_growing || is_plain_text(sum))) {
      if (!std::exchange(is_growing, true)) text = sum.string();
      frame.evaluation.charge_text(text.size() + part.string().size());
      text += part.string();
      continue;
    }
    if (std::exchange(is_growing, false)) sum = Value(std::move(text));
    sum = quire::jinja::apply(frame.evaluation, Binary::add, sum, part);
  }
  return is_growing ? Value(std::move(text)) : sum;
}

}  // namespace

Value BinaryExpr::evaluate(Frame& frame) const {
  frame.evaluation.step();
  if (op == Binary::add) {
    std::vector<const BinaryExpr*> sums{this};
    while (const auto* before = dynamic_cast<const BinaryExpr*>(sums.back()->left.get())) {
      if (before->op != Binary::add) break;
      frame.evaluation.step();
      sums.push_back(before);
    }
    if (sums.size() > 1) return sum_of(frame, sums);
  }
  const Value a = left->evaluate(frame);
  const Value b = right->evaluate(frame);
  return quire::jinja::apply(frame.evaluation, op, a, b);
}

Value LogicExpr::evaluate(Frame& frame) const {
  Value value = left->evaluate(frame);
  return truthy(value) == is_and ? right->evaluate(frame) : value;
}

Value CompareExpr::evaluate(Frame& frame) const {
  frame.evaluation.step();
  Value left = first->evaluate(frame);
  for (const auto& [op, operand] : rest) {
    Value right = operand->evaluate(frame);
    if (!compare(frame.evaluation, op, left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value ConcatExpr::evaluate(Frame& frame) const {
  Evaluation& evaluation = frame.evaluation;
  List parts;
  bool safe = false;
  for (const ExprPtr& item : items) {
    evaluation.step();
    parts.push_back(item->evaluate(frame));
    safe = safe || (evaluation.autoescape && is_safe(parts.back()));
  }
  std::string text;
  for (const Value& part : parts) {
    const std::size_t before = text.size();
    append_text(text, safe ? escape(part) : part);
    evaluation.charge_text(text.size() - before);
  }
  return evaluation.text(std::move(text), safe);
}

Value ConditionalExpr::evaluate(Frame& frame) const {
  if (truthy(test->evaluate(frame))) return then->evaluate(frame);
  if (otherwise) return otherwise->evaluate(frame);
  return Value::undefined("the inline if-expression on line " + std::to_string(line) +
                          " evaluated to false and no else section was defined.");
}

Value AttributeExpr::evaluate(Frame& frame) const {
  frame.evaluation.step();
  return get_attribute(frame.evaluation, object->evaluate(frame), name);
}

Value ItemExpr::evaluate(Frame& frame) const {
  frame.evaluation.step();
  const Value base = object->evaluate(frame);
  return get_item(frame.evaluation, base, key->evaluate(frame));
}

Value SliceExpr::evaluate(Frame& frame) const {
  frame.evaluation.step();
  const auto index = [&](const ExprPtr& part) { return part ? part->evaluate(frame) : Value(); };
  const Value base = object->evaluate(frame);
  const Value first = index(start);
  const Value last = index(stop);
  const Slice by{first, last, index(step)};
  const auto is_constant = [](const ExprPtr& part) { return !part || part->is_constant(); };
  if (!is_constant(object) || !is_constant(start) || !is_constant(stop) || !is_constant(step)) {
    return slice(frame.evaluation, base, by);
  }
  // jinja2 folds constants, and there a slice that does not work is an item that does not exist.
  try {
    return slice(frame.evaluation, base, by);
  } catch (const TemplateError& error) {
    if (error.kind != ErrorKind::type) throw;
    return Value::undefined({Undefined::Why::element, "slice", std::string(type_name(base))});
  }
}

Arguments CallArguments::evaluate(Frame& frame) const {
  Arguments arguments;
  arguments.positional.reserve(positional.size());
  for (const ExprPtr& argument : positional)
    arguments.positional.push_back(argument->evaluate(frame));
  for (const auto& [name, argument] : named)
    arguments.named.emplace_back(name, argument->evaluate(frame));
  if (star) {
    for (Value& item : collect(frame.evaluation, star->evaluate(frame))) {
      arguments.positional.push_back(std::move(item));
    }
  }
  if (!double_star) return arguments;
  const Value more = double_star->evaluate(frame);
  if (!more.is(Kind::dict))
    fail(ErrorKind::type,
         "argument after ** must be a mapping, not " + std::string(type_name(more)));
  frame.evaluation.charge(more.dict().size() * sizeof(Dict::Entry));
  for (const auto& [key, value] : more.dict()) {
    if (!key.is_string()) fail(ErrorKind::type, "keywords must be strings");
    const auto same = [&](const auto& entry) { return entry.first == key.string(); };
    if (std::any_of(named.begin(), named.end(), same)) {
      fail(ErrorKind::type, "got multiple values for keyword argument '" + key.string() + "'");
    }
    arguments.named.emplace_back(key.string(), value);
  }
  return arguments;
}

Value CallExpr::call(Frame& frame, const Value* caller) const {
  Evaluation& evaluation = frame.evaluation;
  evaluation.step();
  evaluation.check_stack();
  if (const auto* method = dynamic_cast<const AttributeExpr*>(callee.get());
      method != nullptr && caller == nullptr) {
    const Value self = method->object->evaluate(frame);
    if (const Method function = find_method(self, method->name.string())) {
      Arguments evaluated = arguments.evaluate(frame);
      return function(evaluation, self, evaluated);
    }
    const Value found = get_attribute(evaluation, self, method->name);
    return call_value(evaluation, found, arguments.evaluate(frame));
  }
  const Value function = callee->evaluate(frame);
  Arguments evaluated = arguments.evaluate(frame);
  if (caller != nullptr) evaluated.named.emplace_back("caller", *caller);
  return call_value(evaluation, function, std::move(evaluated));
}

Value FilterExpr::evaluate(Frame& frame) const { return apply(frame, Value()); }

Value FilterExpr::apply(Frame& frame, const Value& block_text) const {
  frame.evaluation.step();
  frame.evaluation.check_stack();
  const auto* inner = dynamic_cast<const FilterExpr*>(subject.get());
  const Value value = !subject           ? block_text
                      : inner != nullptr ? inner->apply(frame, block_text)
                                         : subject->evaluate(frame);
  Arguments evaluated = arguments.evaluate(frame);
  if (function == nullptr) fail(ErrorKind::runtime, "No filter named '" + name + "' found.");
  return function(frame.evaluation, value, evaluated);
}

Value TestExpr::evaluate(Frame& frame) const {
  frame.evaluation.step();
  const Value value = subject->evaluate(frame);
  Arguments evaluated = arguments.evaluate(frame);
  if (function == nullptr) fail(ErrorKind::runtime, "No test named '" + name + "' found.");
  return Value(function(frame.evaluation, value, evaluated));
}

}  // namespace quire::jinja
