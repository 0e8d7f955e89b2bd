// Binding: the second pass over a parsed template. See scope.h.

#include "jinja/error.h"
#include "jinja/filters/filters.h"
#include "jinja/filters/is_tests.h"
#include "jinja/syntax/statements.h"

namespace quire::jinja {
namespace {

void declare_all(const Body& body, Symbols& symbols) {
  for (const StmtPtr& statement : body) statement->declare(symbols);
}

void bind_all(const Body& body, Binder& binder) {
  for (const StmtPtr& statement : body) statement->bind(binder);
}

void visit_all(const Body& body, const Node::Visit& visit) {
  for (const StmtPtr& statement : body) visit(*statement);
}

std::vector<Node*> nodes_of(const Body& body) {
  std::vector<Node*> nodes;
  for (const StmtPtr& statement : body) nodes.push_back(statement.get());
  return nodes;
}

void collect_targets(Node& node, Binder& binder, std::vector<std::pair<std::string, Slot>>& names,
                     std::vector<Slot>* namespaces) {
  if (const auto* name = dynamic_cast<const NameExpr*>(&node)) {
    names.emplace_back(name->name, binder.slot_of(name->name));
  } else if (const auto* target = dynamic_cast<const NamespaceTarget*>(&node)) {
    if (namespaces != nullptr) namespaces->push_back(binder.slot_of(target->name));
  } else {
    node.each_child([&](Node& child) { collect_targets(child, binder, names, namespaces); });
  }
}

bool names_loop_as_target(Node& node) {
  if (const auto* name = dynamic_cast<const NameExpr*>(&node)) {
    return name->use == NameExpr::Use::store && name->name == "loop";
  }
  bool found = false;
  node.each_child([&](Node& child) { found = found || names_loop_as_target(child); });
  return found;
}

}  // namespace

void Node::declare(Symbols& symbols) {
  each_child([&](Node& child) { child.declare(symbols); });
}

void Node::bind(Binder& binder) {
  each_child([&](Node& child) { child.bind(binder); });
}

void NameExpr::declare(Symbols& symbols) {
  switch (use) {
    case Use::load:
      return symbols.load(name);
    case Use::store:
      return symbols.store(name);
    case Use::parameter:
      return symbols.declare_parameter(name);
  }
}

void NameExpr::bind(Binder& binder) { slot = binder.slot_of(name); }

void NamespaceTarget::bind(Binder& binder) { slot = binder.slot_of(name); }

void ConditionalExpr::bind(Binder& binder) {
  Binder soft = binder;
  soft.soft = true;
  Node::bind(soft);
}

void FilterExpr::bind(Binder& binder) {
  function = find_filter(name);
  if (function == nullptr && !binder.soft)
    fail(ErrorKind::syntax, "No filter named '" + name + "'.", line);
  Node::bind(binder);
}

void TestExpr::bind(Binder& binder) {
  function = find_test(name);
  if (function == nullptr && !binder.soft)
    fail(ErrorKind::syntax, "No test named '" + name + "'.", line);
  Node::bind(binder);
}

void IfStmt::declare(Symbols& symbols) {
  branches[0].test->declare(symbols);
  const auto merged = [&](Symbols& base, const Body& body) {
    Symbols copy = base;
    declare_all(body, copy);
    return copy;
  };
  std::vector<Symbols> outcomes;
  outcomes.push_back(merged(symbols, branches[0].body));
  Symbols elifs = symbols;
  for (std::size_t i = 1; i < branches.size(); ++i) {
    branches[i].test->declare(elifs);
    elifs.merge_branches({merged(elifs, branches[i].body), elifs, elifs});
  }
  outcomes.push_back(std::move(elifs));
  outcomes.push_back(merged(symbols, otherwise));
  symbols.merge_branches(outcomes);
}

void IfStmt::bind(Binder& binder) {
  Binder soft = binder;
  soft.soft = true;
  Node::bind(soft);
}

void IfStmt::each_child(const Visit& visit) {
  for (const Branch& branch : branches) {
    visit(*branch.test);
    visit_all(branch.body, visit);
  }
  visit_all(otherwise, visit);
}

void ForStmt::each_child(const Visit& visit) {
  visit(*target);
  visit(*items);
  visit_all(body, visit);
  visit_all(otherwise, visit);
  if (test) visit(*test);
}

void ForStmt::declare(Symbols& symbols) { items->declare(symbols); }

// The test sees an item in a scope of its own, before the body does.
void ForStmt::bind_test(const Binder& body_binder) {
  Symbols symbols(*body_binder.function, body_binder.symbols->parent(), "?");
  test_target = target->clone_target();
  test_target->declare(symbols);
  test->declare(symbols);
  Binder inner = body_binder.inner(symbols);
  test_target->bind(inner);
  test->bind(inner);
  test_scope = symbols.scope(*body_binder.function);
}

void ForStmt::bind(Binder& binder) {
  items->bind(binder);
  if (names_loop_as_target(*this))
    fail(ErrorKind::syntax, "Can't assign to special loop variable in for-loop target", line);
  own.outer = binder.function;
  Function& function = recursive ? own : *binder.function;
  Symbols loop_symbols(function, binder.symbols);
  Symbols else_symbols(function, binder.symbols);
  has_loop = recursive || find_undeclared(nodes_of(body), {"loop"}).count("loop") > 0;
  each_child([&](Node& child) {
    const auto* block = dynamic_cast<const BlockStmt*>(&child);
    has_loop = has_loop || (block != nullptr && block->scoped);
  });
  if (has_loop) loop_symbols.declare_parameter("loop");
  target->set_parameter();
  target->declare(loop_symbols);
  declare_all(body, loop_symbols);
  declare_all(otherwise, else_symbols);

  Binder inner = binder.inner(loop_symbols);
  inner.function = &function;
  if (test) bind_test(inner);
  if (has_loop) loop_variable = inner.slot_of("loop");
  target->bind(inner);
  inner.in_loop = true;
  bind_all(body, inner);
  loop_scope = loop_symbols.scope(function);

  inner.symbols = &else_symbols;
  inner.in_loop = binder.in_loop && !recursive;
  bind_all(otherwise, inner);
  else_scope = else_symbols.scope(function);
}

void MacroBody::each_child(const Node::Visit& visit) {
  for (const auto& parameter : parameters) visit(*parameter);
  for (const ExprPtr& value : defaults) visit(*value);
  visit_all(body, visit);
}

void MacroBody::bind(Binder& binder, int line) {
  own.outer = binder.function;
  Symbols symbols(own, binder.symbols);
  const auto declare = [&] { each_child([&](Node& child) { child.declare(symbols); }); };
  declare();
  const std::set<std::string> special =
      find_undeclared(nodes_of(body), {"caller", "kwargs", "varargs"});
  const auto slot_for = [&](const std::string& name) {
    const auto same = [&](const auto& parameter) { return parameter->name == name; };
    if (special.count(name) == 0 || std::any_of(parameters.begin(), parameters.end(), same))
      return -1;
    symbols.declare_parameter(name);
    return symbols.own_slot(name);
  };
  takes_caller = special.count("caller") > 0;
  for (std::size_t i = 0; i + defaults.size() < parameters.size(); ++i) {
    if (takes_caller && parameters[i]->name == "caller") {
      fail(ErrorKind::syntax,
           "When defining macros or call blocks the special \"caller\" argument must be omitted or "
           "be given a default.",
           line);
    }
  }
  caller_slot = slot_for("caller");
  kwargs_slot = slot_for("kwargs");
  varargs_slot = slot_for("varargs");
  declare();

  Binder inner = binder.inner(symbols);
  inner.function = &own;
  inner.in_loop = false;
  each_child([&](Node& child) { child.bind(inner); });
  scope = symbols.scope(own);
}

void MacroStmt::bind(Binder& binder) {
  macro.bind(binder, line);
  slot = binder.slot_of(name);
  exported = binder.top_level && !binder.blocks->empty();
}

void CallBlockStmt::each_child(const Visit& visit) {
  if (call) visit(*call);
  macro.each_child(visit);
}

void CallBlockStmt::declare(Symbols& symbols) {
  if (call) call->declare(symbols);
}

void CallBlockStmt::bind(Binder& binder) {
  macro.bind(binder, line);
  if (call) call->bind(binder);
}

void FilterBlockStmt::each_child(const Visit& visit) {
  visit_all(body, visit);
  visit(*filter);
}

void FilterBlockStmt::bind(Binder& binder) {
  Symbols symbols(*binder.function, binder.symbols);
  Node::declare(symbols);
  Binder inner = binder.inner(symbols);
  Node::bind(inner);
  scope = symbols.scope(*binder.function);
}

void WithStmt::each_child(const Visit& visit) {
  for (const ExprPtr& target : targets) visit(*target);
  for (const ExprPtr& value : values) visit(*value);
  visit_all(body, visit);
}

void WithStmt::declare(Symbols& symbols) {
  for (const ExprPtr& value : values) value->declare(symbols);
}

void WithStmt::bind(Binder& binder) {
  for (const ExprPtr& value : values) value->bind(binder);
  Symbols symbols(*binder.function, binder.symbols);
  for (const ExprPtr& target : targets) target->declare(symbols);
  declare_all(body, symbols);
  Binder inner = binder.inner(symbols);
  for (const ExprPtr& target : targets) target->bind(inner);
  bind_all(body, inner);
  scope = symbols.scope(*binder.function);
}

void SetStmt::each_child(const Visit& visit) {
  visit(*target);
  visit(*value);
}

void SetStmt::declare(Symbols& symbols) {
  value->declare(symbols);
  target->declare(symbols);
}

void SetStmt::bind(Binder& binder) {
  Node::bind(binder);
  exported = binder.top_level && !binder.blocks->empty();
  collect_targets(*target, binder, names, &namespaces);
}

void SetBlockStmt::each_child(const Visit& visit) {
  visit(*target);
  if (filter) visit(*filter);
  visit_all(body, visit);
}

void SetBlockStmt::bind(Binder& binder) {
  target->bind(binder);
  exported = binder.top_level && !binder.blocks->empty();
  collect_targets(*target, binder, names, nullptr);
  Symbols symbols(*binder.function, binder.symbols);
  declare_all(body, symbols);
  if (filter) filter->declare(symbols);
  Binder inner = binder.inner(symbols);
  bind_all(body, inner);
  if (filter) filter->bind(inner);
  scope = symbols.scope(*binder.function);
}

void AutoescapeStmt::each_child(const Visit& visit) {
  visit(*enabled);
  visit_all(body, visit);
}

void AutoescapeStmt::bind(Binder& binder) {
  Symbols symbols(*binder.function, binder.symbols);
  Node::declare(symbols);
  Binder inner = binder.inner(symbols);
  Node::bind(inner);
  scope = symbols.scope(*binder.function);
}

void BlockStmt::each_child(const Visit& visit) { visit_all(body, visit); }

// A block sees names, not the variables of the place it stands at.
void BlockStmt::bind(Binder& binder) {
  if (scoped) visible = binder.symbols->visible_stores(*binder.function);
  Symbols symbols(own, nullptr);
  const std::set<std::string> special = find_undeclared(nodes_of(body), {"self", "super"});
  const auto slot_for = [&](const std::string& word) {
    if (special.count(word) == 0) return -1;
    symbols.declare_parameter(word);
    return symbols.own_slot(word);
  };
  self_slot = slot_for("self");
  super_slot = slot_for("super");
  declare_all(body, symbols);
  Binder inner{&own, &symbols, false, false, false, binder.blocks};
  bind_all(body, inner);
  scope = symbols.scope(own);
}

void LoopControlStmt::bind(Binder& binder) {
  if (binder.in_loop) return;
  fail(ErrorKind::syntax,
       flow == Flow::stop_loop ? "'break' outside loop" : "'continue' not properly in loop", line);
}

void LoadStmt::declare(Symbols& symbols) {
  name->declare(symbols);
  for (const std::string& set : sets) symbols.store(set);
}

void LoadStmt::bind(Binder& binder) {
  if (is_extends && !binder.top_level)
    fail(ErrorKind::syntax, "cannot use extend from a non top-level scope", line);
  name->bind(binder);
}

void bind_template(TemplateTree& tree) {
  std::vector<BlockStmt*> blocks;
  const Node::Visit find_blocks = [&](Node& node) {
    if (auto* block = dynamic_cast<BlockStmt*>(&node)) {
      const auto same = [&](const BlockStmt* other) { return other->name == block->name; };
      if (std::any_of(blocks.begin(), blocks.end(), same)) {
        fail(ErrorKind::syntax, "block '" + block->name + "' defined twice", block->line);
      }
      blocks.push_back(block);
    }
    node.each_child(find_blocks);
  };
  visit_all(tree.body, find_blocks);
  tree.blocks.assign(blocks.begin(), blocks.end());

  Symbols symbols(tree.own, nullptr);
  if (find_undeclared(nodes_of(tree.body), {"self"}).count("self") > 0) {
    symbols.declare_parameter("self");
    tree.self_slot = symbols.own_slot("self");
  }
  declare_all(tree.body, symbols);
  Binder binder{&tree.own, &symbols, true, false, false, &blocks};
  bind_all(tree.body, binder);
  tree.scope = symbols.scope(tree.own);
}

}  // namespace quire::jinja
