#include <algorithm>

#include "jinja/error.h"
#include "jinja/syntax/parser.h"

namespace quire::jinja {
namespace {

using Type = Token::Type;

template <class T>
T lookup(const Token& token, std::initializer_list<std::pair<std::string_view, T>> table,
         T otherwise) {
  if (token.is(Type::op)) {
    for (const auto& [sign, meaning] : table) {
      if (token.text == sign) return meaning;
    }
  }
  return otherwise;
}

constexpr auto kNoBinary = Binary(255);
constexpr auto kNoCompare = CompareExpr::Op(255);

}  // namespace

ExprPtr Parser::parse_target(bool with_namespace) {
  ExprPtr target = parse_tuple({.primary_only = true, .with_namespace = with_namespace});
  target->set_store();
  if (!target->can_assign()) {
    fail(ErrorKind::syntax, "can't assign to '" + std::string(target->kind_name()) + "'",
         target->line);
  }
  return target;
}

std::unique_ptr<NameExpr> Parser::parse_target_name() {
  auto target = std::make_unique<NameExpr>();
  const Token token = expect(Type::name);
  static const Words kConstants = {"true", "false", "none", "True", "False", "None"};
  if (std::find(kConstants.begin(), kConstants.end(), token.text) != kConstants.end()) {
    fail(ErrorKind::syntax, "can't assign to 'name'", token.line);
  }
  target->name = token.text;
  target->use = NameExpr::Use::store;
  return finish(std::move(target), token.line);
}

ExprPtr Parser::parse_tuple(TupleOptions options) {
  const int line = current().line;
  auto tuple = std::make_unique<ItemsExpr>();
  tuple->is_tuple = true;
  bool has_comma = false;
  for (;;) {
    if (!tuple->items.empty()) expect_op(",");
    const bool at_end =
        current().is(Type::variable_end) || current().is(Type::block_end) || current().is_op(")");
    if (at_end) break;
    tuple->items.push_back(options.primary_only ? parse_primary(options.with_namespace)
                                                : parse_expression(options.with_conditional));
    if (!current().is_op(",")) break;
    has_comma = true;
  }
  if (!has_comma && !tuple->items.empty()) return std::move(tuple->items.front());
  if (!has_comma && !options.parenthesized) {
    fail_here("Expected an expression, got '" + describe(current()) + "'");
  }
  return finish(std::move(tuple), line);
}

ExprPtr Parser::parse_expression(bool with_conditional) {
  const Nested nested(*this);
  const int line = current().line;
  ExprPtr expr = parse_or();
  while (with_conditional && skip_name("if")) {
    auto conditional = std::make_unique<ConditionalExpr>();
    conditional->then = std::move(expr);
    conditional->test = parse_or();
    if (skip_name("else")) conditional->otherwise = parse_expression();
    expr = finish(std::move(conditional), line);
  }
  return expr;
}

ExprPtr Parser::parse_or() {
  const int line = current().line;
  ExprPtr left = parse_and();
  while (skip_name("or")) {
    auto logic = std::make_unique<LogicExpr>();
    logic->is_and = false;
    logic->left = std::move(left);
    logic->right = parse_and();
    left = finish(std::move(logic), line);
  }
  return left;
}

ExprPtr Parser::parse_and() {
  const int line = current().line;
  ExprPtr left = parse_not();
  while (skip_name("and")) {
    auto logic = std::make_unique<LogicExpr>();
    logic->left = std::move(left);
    logic->right = parse_not();
    left = finish(std::move(logic), line);
  }
  return left;
}

ExprPtr Parser::parse_not() {
  const int line = current().line;
  if (!skip_name("not")) return parse_compare();
  const Nested nested(*this);
  auto negation = std::make_unique<UnaryExpr>();
  negation->op = '!';
  negation->operand = parse_not();
  return finish(std::move(negation), line);
}

ExprPtr Parser::parse_compare() {
  using Op = CompareExpr::Op;
  const int line = current().line;
  auto compare = std::make_unique<CompareExpr>();
  compare->first = parse_sum();
  for (;;) {
    Op op = lookup<Op>(current(),
                       {{"==", Op::equal},
                        {"!=", Op::not_equal},
                        {"<", Op::less},
                        {"<=", Op::less_equal},
                        {">", Op::greater},
                        {">=", Op::greater_equal}},
                       kNoCompare);
    if (current().is_name("in")) op = Op::in;
    if (current().is_name("not") && following().is_name("in")) {
      op = Op::not_in;
      take();
    }
    if (op == kNoCompare) break;
    take();
    compare->rest.emplace_back(op, parse_sum());
  }
  if (compare->rest.empty()) return std::move(compare->first);
  return finish(std::move(compare), line);
}

ExprPtr Parser::parse_binary(ExprPtr left, Binary op, ExprPtr right, int line) {
  auto binary = std::make_unique<BinaryExpr>();
  binary->op = op;
  binary->left = std::move(left);
  binary->right = std::move(right);
  return finish(std::move(binary), line);
}

ExprPtr Parser::parse_sum() {
  const int line = current().line;
  ExprPtr left = parse_concat();
  for (;;) {
    const Binary op =
        lookup<Binary>(current(), {{"+", Binary::add}, {"-", Binary::subtract}}, kNoBinary);
    if (op == kNoBinary) return left;
    take();
    left = parse_binary(std::move(left), op, parse_concat(), line);
  }
}

ExprPtr Parser::parse_concat() {
  const int line = current().line;
  auto concat = std::make_unique<ConcatExpr>();
  concat->items.push_back(parse_product());
  while (skip_op("~")) concat->items.push_back(parse_product());
  if (concat->items.size() == 1) return std::move(concat->items.front());
  return finish(std::move(concat), line);
}

ExprPtr Parser::parse_product() {
  const int line = current().line;
  ExprPtr left = parse_power();
  for (;;) {
    const Binary op = lookup<Binary>(current(),
                                     {{"*", Binary::multiply},
                                      {"/", Binary::divide},
                                      {"//", Binary::floor_divide},
                                      {"%", Binary::modulo}},
                                     kNoBinary);
    if (op == kNoBinary) return left;
    take();
    left = parse_binary(std::move(left), op, parse_power(), line);
  }
}

ExprPtr Parser::parse_power() {
  const int line = current().line;
  ExprPtr left = parse_unary();
  while (skip_op("**")) left = parse_binary(std::move(left), Binary::power, parse_unary(), line);
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  const Nested nested(*this);
  const int line = current().line;
  ExprPtr expr;
  if (current().is_op("-") || current().is_op("+")) {
    auto unary = std::make_unique<UnaryExpr>();
    unary->op = take().text[0];
    unary->operand = parse_unary(false);
    expr = finish(std::move(unary), line);
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filter ? parse_filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::parse_named(bool with_namespace) {
  const Token token = take();
  const std::string& word = token.text;
  auto constant = std::make_unique<ConstExpr>();
  if (word == "true" || word == "True" || word == "false" || word == "False") {
    constant->value = Value(word == "true" || word == "True");
    return finish(std::move(constant), token.line);
  }
  if (word == "none" || word == "None") return finish(std::move(constant), token.line);
  if (with_namespace && skip_op(".")) {
    auto target = std::make_unique<NamespaceTarget>();
    target->name = word;
    target->attribute = expect(Type::name).text;
    return finish(std::move(target), token.line);
  }
  auto name = std::make_unique<NameExpr>();
  name->name = word;
  return finish(std::move(name), token.line);
}

ExprPtr Parser::parse_primary(bool with_namespace) {
  const int line = current().line;
  if (current().is(Type::name)) return parse_named(with_namespace);
  if (current().is(Type::text)) {
    std::string text = take().text;
    while (current().is(Type::text)) text += take().text;
    auto constant = std::make_unique<ConstExpr>();
    constant->value = Value(std::move(text));
    return finish(std::move(constant), line);
  }
  if (current().is(Type::number)) {
    auto constant = std::make_unique<ConstExpr>();
    constant->value = take().number;
    return finish(std::move(constant), line);
  }
  if (skip_op("(")) {
    const Nested nested(*this);
    ExprPtr expr = parse_tuple({.parenthesized = true});
    expect_op(")");
    return expr;
  }
  if (current().is_op("[")) return parse_list();
  if (current().is_op("{")) return parse_dict();
  fail_here("unexpected '" + describe(current()) + "'");
}

ExprPtr Parser::parse_list() {
  const int line = take().line;
  auto list = std::make_unique<ItemsExpr>();
  while (!current().is_op("]")) {
    if (!list->items.empty()) expect_op(",");
    if (current().is_op("]")) break;
    list->items.push_back(parse_expression());
  }
  expect_op("]");
  return finish(std::move(list), line);
}

ExprPtr Parser::parse_dict() {
  const int line = take().line;
  auto dict = std::make_unique<DictExpr>();
  while (!current().is_op("}")) {
    if (!dict->entries.empty()) expect_op(",");
    if (current().is_op("}")) break;
    ExprPtr key = parse_expression();
    expect_op(":");
    dict->entries.emplace_back(std::move(key), parse_expression());
  }
  expect_op("}");
  return finish(std::move(dict), line);
}

ExprPtr Parser::parse_postfix(ExprPtr expr) {
  for (;;) {
    if (current().is_op(".") || current().is_op("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (current().is_op("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr expr) {
  for (;;) {
    if (skip_op("|")) {
      expr = parse_filter(std::move(expr));
    } else if (current().is_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (current().is_op("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

}  // namespace quire::jinja
