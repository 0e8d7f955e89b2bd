// Walking the tree: who is whose child, and what may be assigned to.

#include "jinja/syntax/ast.h"

#include <algorithm>

#include "jinja/syntax/statements.h"

namespace quire::jinja {
namespace {

void visit_all(const ExprList& items, const Node::Visit& visit) {
  for (const ExprPtr& item : items) visit(*item);
}

void visit_if(const ExprPtr& expr, const Node::Visit& visit) {
  if (expr) visit(*expr);
}

}  // namespace

bool ItemsExpr::is_constant() const {
  return std::all_of(items.begin(), items.end(),
                     [](const ExprPtr& item) { return item->is_constant(); });
}

void ItemsExpr::set_store() {
  for (const ExprPtr& item : items) item->set_store();
}

void ItemsExpr::set_parameter() {
  for (const ExprPtr& item : items) item->set_parameter();
}

std::unique_ptr<Expr> ItemsExpr::clone_target() const {
  auto copy = std::make_unique<ItemsExpr>();
  copy->is_tuple = is_tuple;
  for (const ExprPtr& item : items) copy->items.push_back(item->clone_target());
  return copy;
}

void ItemsExpr::each_child(const Visit& visit) { visit_all(items, visit); }

void DictExpr::each_child(const Visit& visit) {
  for (const auto& [key, value] : entries) {
    visit(*key);
    visit(*value);
  }
}

void BinaryExpr::each_child(const Visit& visit) {
  visit(*left);
  visit(*right);
}

void LogicExpr::each_child(const Visit& visit) {
  visit(*left);
  visit(*right);
}

void CompareExpr::each_child(const Visit& visit) {
  visit(*first);
  for (const auto& [op, operand] : rest) visit(*operand);
}

void ConcatExpr::each_child(const Visit& visit) { visit_all(items, visit); }

void ConditionalExpr::each_child(const Visit& visit) {
  visit(*test);
  visit(*then);
  visit_if(otherwise, visit);
}

void ItemExpr::each_child(const Visit& visit) {
  visit(*object);
  visit(*key);
}

void SliceExpr::each_child(const Visit& visit) {
  visit_if(object, visit);
  visit_if(start, visit);
  visit_if(stop, visit);
  visit_if(step, visit);
}

void CallArguments::each_child(const Node::Visit& visit) {
  visit_all(positional, visit);
  for (const auto& [name, value] : named) visit(*value);
  visit_if(star, visit);
  visit_if(double_star, visit);
}

void CallExpr::each_child(const Visit& visit) {
  visit(*callee);
  arguments.each_child(visit);
}

void FilterExpr::each_child(const Visit& visit) {
  visit_if(subject, visit);
  arguments.each_child(visit);
}

void TestExpr::each_child(const Visit& visit) {
  visit(*subject);
  arguments.each_child(visit);
}

void OutputStmt::each_child(const Visit& visit) { visit_all(items, visit); }

}  // namespace quire::jinja
