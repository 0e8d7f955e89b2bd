// Attributes, items, calls, filters and tests: what follows an expression.

#include <algorithm>
#include <set>

#include "jinja/error.h"
#include "jinja/syntax/parser.h"

namespace quire::jinja {
namespace {

using Type = Token::Type;

// A slice that has not been put to its object yet, as it stands between brackets.
SliceExpr* bare_slice(const ExprPtr& key) {
  auto* slice = dynamic_cast<SliceExpr*>(key.get());
  return slice != nullptr && !slice->object ? slice : nullptr;
}

}  // namespace

// After the dot.
ExprPtr Parser::parse_dotted(ExprPtr object, int line) {
  const Token name = take();
  if (name.is(Type::name)) {
    auto attribute = std::make_unique<AttributeExpr>();
    attribute->object = std::move(object);
    attribute->name = Value(name.text);
    return finish(std::move(attribute), line);
  }
  if (!name.is(Type::number) || name.number.is(Value::Kind::real)) {
    fail(ErrorKind::syntax, "expected name or number", name.line);
  }
  auto key = std::make_unique<ConstExpr>();
  key->value = name.number;
  auto item = std::make_unique<ItemExpr>();
  item->object = std::move(object);
  item->key = finish(std::move(key), name.line);
  return finish(std::move(item), line);
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  const Token opening = take();
  if (opening.text == ".") return parse_dotted(std::move(object), opening.line);
  auto keys = std::make_unique<ItemsExpr>();
  keys->is_tuple = true;
  while (!current().is_op("]")) {
    if (!keys->items.empty()) expect_op(",");
    keys->items.push_back(parse_subscript_key());
  }
  expect_op("]");
  if (keys->items.size() == 1) {
    if (auto* slice = bare_slice(keys->items[0])) {
      slice->object = std::move(object);
      keys->items[0].release();
      return finish(std::unique_ptr<SliceExpr>(slice), opening.line);
    }
  }
  for (const ExprPtr& key : keys->items) {
    if (bare_slice(key) != nullptr) {
      fail(ErrorKind::syntax, "invalid syntax", opening.line);
    }
  }
  auto item = std::make_unique<ItemExpr>();
  item->object = std::move(object);
  item->key =
      keys->items.size() == 1 ? std::move(keys->items[0]) : finish(std::move(keys), opening.line);
  return finish(std::move(item), opening.line);
}

ExprPtr Parser::parse_subscript_key() {
  const int line = current().line;
  ExprPtr start;
  if (!current().is_op(":")) {
    start = parse_expression();
    if (!current().is_op(":")) return start;
  }
  take();
  auto slice = std::make_unique<SliceExpr>();
  slice->start = std::move(start);
  const auto at_end = [&] { return current().is_op("]") || current().is_op(","); };
  if (!current().is_op(":") && !at_end()) slice->stop = parse_expression();
  if (skip_op(":") && !at_end()) slice->step = parse_expression();
  return finish(std::move(slice), line);
}

CallArguments Parser::parse_arguments() {
  const int line = current().line;
  const Nested nested(*this);
  expect_op("(");
  CallArguments arguments;
  std::set<std::string> names;
  bool first = true;
  const auto require = [&](bool allowed) {
    if (!allowed) fail(ErrorKind::syntax, "invalid syntax for function call expression", line);
  };
  while (!current().is_op(")")) {
    if (!first) {
      expect_op(",");
      if (current().is_op(")")) break;
    }
    first = false;
    if (skip_op("*")) {
      require(!arguments.star && !arguments.double_star);
      arguments.star = parse_expression();
    } else if (skip_op("**")) {
      require(!arguments.double_star);
      arguments.double_star = parse_expression();
    } else if (current().is(Type::name) && following().is_op("=")) {
      require(!arguments.double_star);
      const std::string name = take().text;
      take();
      if (!names.insert(name).second)
        fail(ErrorKind::syntax, "keyword argument repeated: " + name, line);
      arguments.named.emplace_back(name, parse_expression());
    } else {
      require(!arguments.star && !arguments.double_star && arguments.named.empty());
      arguments.positional.push_back(parse_expression());
    }
  }
  expect_op(")");
  return arguments;
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  const int line = current().line;
  auto call = std::make_unique<CallExpr>();
  call->callee = std::move(callee);
  call->arguments = parse_arguments();
  return finish(std::move(call), line);
}

std::string Parser::parse_dotted_name() {
  std::string name = expect(Type::name).text;
  while (skip_op(".")) name += "." + expect(Type::name).text;
  return name;
}

ExprPtr Parser::parse_filter(ExprPtr subject) {
  const int line = current().line;
  auto filter = std::make_unique<FilterExpr>();
  filter->subject = std::move(subject);
  filter->name = parse_dotted_name();
  if (current().is_op("(")) filter->arguments = parse_arguments();
  return finish(std::move(filter), line);
}

ExprPtr Parser::parse_test(ExprPtr subject) {
  const int line = take().line;
  const bool negated = skip_name("not");
  auto test = std::make_unique<TestExpr>();
  test->subject = std::move(subject);
  test->name = parse_dotted_name();
  const bool has_operand = current().is(Type::name) || current().is(Type::text) ||
                           current().is(Type::number) || current().is_op("[") ||
                           current().is_op("{");
  const bool continues =
      current().is_name("else") || current().is_name("or") || current().is_name("and");
  if (current().is_op("(")) {
    test->arguments = parse_arguments();
  } else if (has_operand && !continues) {
    if (current().is_name("is")) fail_here("You cannot chain multiple tests with is");
    test->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  ExprPtr result = finish(std::move(test), line);
  if (!negated) return result;
  auto negation = std::make_unique<UnaryExpr>();
  negation->op = '!';
  negation->operand = std::move(result);
  return finish(std::move(negation), line);
}

}  // namespace quire::jinja
