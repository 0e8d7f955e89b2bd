#include "jinja/syntax/statements.h"

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/filters/globals.h"
#include "jinja/values/attributes.h"
#include "jinja/values/markup.h"
#include "jinja/values/repr.h"

namespace quire::jinja {
namespace {

// {{ self.name() }} renders a block once more.
class BlockReference : public Object {
 public:
  explicit BlockReference(const BlockStmt& block) : block_(block) {}
  std::string_view type_name() const override { return "BlockReference"; }
  bool callable() const override { return true; }
  Value call(Evaluation& evaluation, Arguments) override {
    return evaluation.text(block_.render(evaluation), evaluation.autoescape);
  }

 private:
  const BlockStmt& block_;
};

class TemplateReference : public Object {
 public:
  explicit TemplateReference(const TemplateTree& tree) : tree_(tree) {}
  std::string_view type_name() const override { return "TemplateReference"; }
  void append_repr(std::string& out, int) const override { out += "<TemplateReference None>"; }
  bool has_items() const override { return true; }
  Value item(const Value& key) const override {
    for (const BlockStmt* block : tree_.blocks) {
      if (key.is_string() && block->name == key.string())
        return make_object<BlockReference>(*block);
    }
    return Value::missing();
  }

 private:
  const TemplateTree& tree_;
};

void export_names(Frame& frame, const std::vector<std::pair<std::string, Slot>>& names) {
  for (const auto& [name, slot] : names)
    frame.evaluation.set_name(name, variable(frame.locals, slot));
}

void print(Frame& frame, const Value& value) {
  const std::size_t before = frame.out->size();
  append_text(*frame.out, frame.evaluation.autoescape ? escape(value) : value);
  frame.evaluation.charge(frame.out->size() - before);
  if (frame.out->size() > frame.evaluation.limits().output_bytes)
    frame.evaluation.charge_text(frame.out->size());
}

}  // namespace

Flow run(const Body& body, Frame& frame) {
  frame.evaluation.check_stack();
  for (const StmtPtr& statement : body) {
    frame.evaluation.step();
    frame.evaluation.line = statement->line;
    if (const Flow flow = statement->execute(frame); flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Flow OutputStmt::execute(Frame& frame) const {
  for (const ExprPtr& item : items) {
    frame.evaluation.step();
    if (const auto* data = dynamic_cast<const DataExpr*>(item.get())) {
      frame.evaluation.charge(data->text.size());
      frame.out->append(data->text);
      if (frame.out->size() > frame.evaluation.limits().output_bytes)
        frame.evaluation.charge_text(frame.out->size());
      continue;
    }
    frame.evaluation.line = item->line;
    print(frame, item->evaluate(frame));
  }
  return Flow::normal;
}

Flow IfStmt::execute(Frame& frame) const {
  for (const Branch& branch : branches) {
    if (truthy(branch.test->evaluate(frame))) return run(branch.body, frame);
  }
  return run(otherwise, frame);
}

Flow FilterBlockStmt::execute(Frame& frame) const {
  scope.enter(frame.evaluation, frame.locals);
  std::string text;
  Frame inner{frame.evaluation, frame.locals, &text};
  const Flow flow = run(body, inner);
  if (flow != Flow::normal) return flow;
  const Value value = frame.evaluation.text(std::move(text), frame.evaluation.autoescape);
  print(frame, static_cast<const FilterExpr&>(*filter).apply(frame, value));
  scope.leave(frame.locals);
  return Flow::normal;
}

Flow WithStmt::execute(Frame& frame) const {
  scope.enter(frame.evaluation, frame.locals);
  for (std::size_t i = 0; i < targets.size(); ++i)
    targets[i]->assign(frame, values[i]->evaluate(frame));
  const Flow flow = run(body, frame);
  scope.leave(frame.locals);
  return flow;
}

Flow SetStmt::execute(Frame& frame) const {
  for (const Slot& slot : namespaces) {
    if (object_as<Namespace>(variable(frame.locals, slot)) == nullptr) {
      fail(ErrorKind::runtime, "cannot assign attribute on non-namespace object");
    }
  }
  target->assign(frame, value->evaluate(frame));
  if (exported) export_names(frame, names);
  return Flow::normal;
}

Flow SetBlockStmt::execute(Frame& frame) const {
  scope.enter(frame.evaluation, frame.locals);
  std::string text;
  Frame inner{frame.evaluation, frame.locals, &text};
  const Flow flow = run(body, inner);
  if (flow != Flow::normal) return flow;
  const bool safe = frame.evaluation.autoescape;
  Value value = frame.evaluation.text(std::move(text), safe);
  if (filter) {
    value = static_cast<const FilterExpr&>(*filter).apply(frame, value);
    if (safe) value = Value(to_text(value), true);
  }
  target->assign(frame, std::move(value));
  if (exported) export_names(frame, names);
  scope.leave(frame.locals);
  return Flow::normal;
}

Flow AutoescapeStmt::execute(Frame& frame) const {
  const bool before = frame.evaluation.autoescape;
  scope.enter(frame.evaluation, frame.locals);
  frame.evaluation.autoescape = truthy(enabled->evaluate(frame));
  const Flow flow = run(body, frame);
  frame.evaluation.autoescape = before;
  scope.leave(frame.locals);
  return flow;
}

Flow BlockStmt::execute(Frame& frame) const {
  if (required) fail(ErrorKind::runtime, "Required block '" + name + "' not found");
  Dict names;
  if (scoped) {
    names = frame.evaluation.names();
    for (const auto& [visible_name, slot] : visible) {
      const Value& value = variable(frame.locals, slot);
      if (!value.is(Value::Kind::missing)) names.set(visible_name, value);
    }
    frame.evaluation.swap_names(names);
  }
  *frame.out += render(frame.evaluation);
  if (scoped) frame.evaluation.swap_names(names);
  return Flow::normal;
}

std::string BlockStmt::render(Evaluation& evaluation) const {
  const RunningFunction running(evaluation, nullptr, own);
  if (self_slot >= 0)
    running.locals()->slots[std::size_t(self_slot)] =
        make_object<TemplateReference>(*evaluation.tree);
  if (super_slot >= 0) {
    running.locals()->slots[std::size_t(super_slot)] =
        Value::undefined("there is no parent block called '" + name + "'.");
  }
  std::string text;
  Frame frame{evaluation, running.locals(), &text};
  scope.enter(evaluation, running.locals());
  run(body, frame);
  evaluation.charge_text(text.size());
  return text;
}

Flow LoadStmt::execute(Frame& frame) const {
  name->evaluate(frame);
  fail(ErrorKind::type, "no loader for this environment specified");
}

std::string render_tree(const TemplateTree& tree, Evaluation& evaluation) {
  evaluation.tree = &tree;
  const RunningFunction running(evaluation, nullptr, tree.own);
  if (tree.self_slot >= 0)
    running.locals()->slots[std::size_t(tree.self_slot)] = make_object<TemplateReference>(tree);
  std::string text;
  Frame frame{evaluation, running.locals(), &text};
  tree.scope.enter(evaluation, running.locals());
  run(tree.body, frame);
  return text;
}

Flow CallBlockStmt::execute(Frame& frame) const {
  if (!call) {
    const RunningFunction running(frame.evaluation, frame.locals, macro.own);
    Frame inner{frame.evaluation, running.locals(), frame.out};
    macro.scope.enter(frame.evaluation, running.locals());
    return run(macro.body, inner);
  }
  const Value caller = make_macro(frame, macro, "");
  print(frame, call->call(frame, &caller));
  return Flow::normal;
}

Flow MacroStmt::execute(Frame& frame) const {
  Value value = make_macro(frame, macro, name);
  if (exported) frame.evaluation.set_name(name, value);
  variable(frame.locals, slot) = std::move(value);
  return Flow::normal;
}

}  // namespace quire::jinja
