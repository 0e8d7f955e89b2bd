#pragma once
// The statements of a template.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/scope.h"
#include "jinja/syntax/ast.h"

namespace quire::jinja {

struct OutputStmt : Stmt {
  ExprList items;
  Flow execute(Frame& frame) const override;
  void each_child(const Visit& visit) override;
};

struct IfStmt : Stmt {
  struct Branch {
    ExprPtr test;
    Body body;
  };
  std::vector<Branch> branches;
  Body otherwise;
  Flow execute(Frame& frame) const override;
  void each_child(const Visit& visit) override;
  void declare(Symbols& symbols) override;
  void bind(Binder& binder) override;
};

struct ForStmt : Stmt {
  ExprPtr target;
  ExprPtr items;
  ExprPtr test;         // may be null
  ExprPtr test_target;  // what the test sees of an item: as `target`, in the test's scope
  Body body;
  Body otherwise;
  bool recursive = false;

  Scope loop_scope;
  Scope test_scope;
  Scope else_scope;
  Function own;        // of a recursive loop
  Slot loop_variable;  // where the body names `loop`
  bool has_loop = false;

  Flow execute(Frame& frame) const override;
  // A recursive loop over `source`, inside `depth` others; `frame` is where the statement stands.
  void iterate(Frame& frame, const Value& source, int depth) const;
  void each_child(const Visit& visit) override;
  void declare(Symbols& symbols) override;
  void bind(Binder& binder) override;

 private:
  void bind_test(const Binder& body_binder);
  Flow loop_over(Frame& outer, Frame& frame, const Value& source, int depth) const;
};

// What macros and call blocks have in common: parameters and a body that becomes a text.
struct MacroBody {
  std::vector<std::unique_ptr<NameExpr>> parameters;
  ExprList defaults;  // of the last parameters
  Body body;
  Function own;
  Scope scope;
  int caller_slot = -1;  // where the body names them without having such a parameter
  int kwargs_slot = -1;
  int varargs_slot = -1;
  bool takes_caller = false;  // the body names caller

  void each_child(const Node::Visit& visit);
  void bind(Binder& binder, int line);
};

struct MacroStmt : Stmt {
  std::string name;
  MacroBody macro;
  Slot slot;
  bool exported = false;
  Flow execute(Frame& frame) const override;
  void each_child(const Visit& visit) override { macro.each_child(visit); }
  void declare(Symbols& symbols) override { symbols.store(name); }
  void bind(Binder& binder) override;
};

Value make_macro(Frame& frame, const MacroBody& body, const std::string& name);

struct CallBlockStmt : Stmt {
  std::unique_ptr<CallExpr> call;  // null: a generation block, which is its body's text
  MacroBody macro;
  Flow execute(Frame& frame) const override;
  void each_child(const Visit& visit) override;
  void declare(Symbols& symbols) override;
  void bind(Binder& binder) override;
};

struct FilterBlockStmt : Stmt {
  ExprPtr filter;  // a chain of FilterExpr whose first has no subject
  Body body;
  Scope scope;
  Flow execute(Frame& frame) const override;
  void each_child(const Visit& visit) override;
  void declare(Symbols& symbols) override { filter->declare(symbols); }
  void bind(Binder& binder) override;
};

struct WithStmt : Stmt {
  ExprList targets;
  ExprList values;
  Body body;
  Scope scope;
  Flow execute(Frame& frame) const override;
  void each_child(const Visit& visit) override;
  void declare(Symbols& symbols) override;
  void bind(Binder& binder) override;
};

struct SetStmt : Stmt {
  ExprPtr target;
  ExprPtr value;
  bool exported = false;  // at top level of a template with blocks, which see it by name
  std::vector<std::pair<std::string, Slot>> names;
  std::vector<Slot> namespaces;  // what must be namespaces before anything is set
  Flow execute(Frame& frame) const override;
  void each_child(const Visit& visit) override;
  void declare(Symbols& symbols) override;
  void bind(Binder& binder) override;
};

struct SetBlockStmt : Stmt {
  ExprPtr target;
  ExprPtr filter;  // may be null
  Body body;
  Scope scope;
  bool exported = false;
  std::vector<std::pair<std::string, Slot>> names;
  Flow execute(Frame& frame) const override;
  void each_child(const Visit& visit) override;
  void declare(Symbols& symbols) override { target->declare(symbols); }
  void bind(Binder& binder) override;
};

struct AutoescapeStmt : Stmt {
  ExprPtr enabled;
  Body body;
  Scope scope;
  Flow execute(Frame& frame) const override;
  void each_child(const Visit& visit) override;
  void declare(Symbols&) override {}
  void bind(Binder& binder) override;
};

struct BlockStmt : Stmt {
  std::string name;
  bool scoped = false;
  bool required = false;
  Body body;
  Function own;
  Scope scope;
  int self_slot = -1;
  int super_slot = -1;
  std::vector<std::pair<std::string, Slot>> visible;  // of the place it stands at, where scoped
  Flow execute(Frame& frame) const override;
  std::string render(Evaluation& evaluation) const;
  void each_child(const Visit& visit) override;
  void declare(Symbols&) override {}
  void bind(Binder& binder) override;
};

struct LoopControlStmt : Stmt {
  Flow flow = Flow::stop_loop;
  Flow execute(Frame&) const override { return flow; }
  void bind(Binder& binder) override;
};

// include, import, from and extends: there is nothing to load from.
struct LoadStmt : Stmt {
  ExprPtr name;
  std::vector<std::string> sets;
  bool is_extends = false;
  Flow execute(Frame& frame) const override;
  void each_child(const Visit& visit) override { visit(*name); }
  void declare(Symbols& symbols) override;
  void bind(Binder& binder) override;
};

struct TemplateTree {
  Body body;
  Function own;
  Scope scope;
  int self_slot = -1;
  std::vector<const BlockStmt*> blocks;
};

// Fails (syntax).
std::unique_ptr<TemplateTree> parse_template(std::string_view source);
void bind_template(TemplateTree& tree);
std::string render_tree(const TemplateTree& tree, Evaluation& evaluation);

}  // namespace quire::jinja
