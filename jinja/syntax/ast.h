#pragma once
// A parsed template. Nodes evaluate themselves; names are bound to slots once, after parsing (see
// scope.h).

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/scope.h"
#include "jinja/values/arithmetic.h"
#include "jinja/values/object.h"
#include "jinja/values/operators.h"
#include "jinja/values/value.h"

namespace quire::jinja {

// Where a node runs.
struct Frame {
  Evaluation& evaluation;
  Activation* locals;
  std::string* out;
};

enum class Flow : std::uint8_t { normal, stop_loop, next_item };

struct Node {
  int line = 0;
  int depth = 1;  // of the tree below
  virtual ~Node() = default;
  using Visit = std::function<void(Node&)>;
  virtual void each_child(const Visit&) {}
  // Tells the symbols which names this node reads and sets in their scope.
  virtual void declare(Symbols& symbols);
  // Whether jinja2 would compute this while compiling.
  virtual bool is_constant() const { return false; }
  // Binds names to slots and checks what can be checked before rendering.
  virtual void bind(Binder& binder);
};

struct Expr : Node {
  virtual Value evaluate(Frame& frame) const = 0;
  virtual bool can_assign() const { return false; }
  virtual std::string_view kind_name() const { return "expression"; }
  virtual void assign(Frame&, Value) const {}
  virtual void set_store() {}  // becomes a target
  virtual void set_parameter() {}
  virtual std::unique_ptr<Expr> clone_target() const { return nullptr; }
};
using ExprPtr = std::unique_ptr<Expr>;
using ExprList = std::vector<ExprPtr>;

struct Stmt : Node {
  virtual Flow execute(Frame& frame) const = 0;
};
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

Flow run(const Body& body, Frame& frame);

// --- expressions ---

struct ConstExpr : Expr {
  Value value;
  Value evaluate(Frame&) const override { return value; }
  bool is_constant() const override { return true; }
  std::string_view kind_name() const override { return "const"; }
};

// Text between tags.
struct DataExpr : Expr {
  std::string text;
  Value evaluate(Frame&) const override { return Value(text, true); }
};

struct NameExpr : Expr {
  enum class Use : std::uint8_t { load, store, parameter };
  std::string name;
  Use use = Use::load;
  Slot slot;
  Value evaluate(Frame& frame) const override;
  bool can_assign() const override { return true; }
  void assign(Frame& frame, Value value) const override;
  void set_store() override { use = Use::store; }
  void set_parameter() override { use = Use::parameter; }
  std::unique_ptr<Expr> clone_target() const override { return std::make_unique<NameExpr>(*this); }
  void declare(Symbols& symbols) override;
  void bind(Binder& binder) override;
};

// {% set ns.name = … %}
struct NamespaceTarget : Expr {
  std::string name;
  std::string attribute;
  Slot slot;
  Value evaluate(Frame&) const override { return Value(); }
  bool can_assign() const override { return true; }
  void assign(Frame& frame, Value value) const override;
  void declare(Symbols& symbols) override { symbols.load(name); }
  void bind(Binder& binder) override;
};

struct ItemsExpr : Expr {  // a list or tuple
  ExprList items;
  bool is_tuple = false;
  Value evaluate(Frame& frame) const override;
  bool is_constant() const override;
  bool can_assign() const override;
  std::string_view kind_name() const override { return is_tuple ? "tuple" : "list"; }
  void assign(Frame& frame, Value value) const override;
  void set_store() override;
  void set_parameter() override;
  std::unique_ptr<Expr> clone_target() const override;
  void each_child(const Visit& visit) override;
};

struct DictExpr : Expr {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
  Value evaluate(Frame& frame) const override;
  std::string_view kind_name() const override { return "dict"; }
  void each_child(const Visit& visit) override;
};

struct UnaryExpr : Expr {
  char op = '-';  // - + or ! for not
  ExprPtr operand;
  Value evaluate(Frame& frame) const override;
  void each_child(const Visit& visit) override { visit(*operand); }
};

struct BinaryExpr : Expr {
  Binary op = Binary::add;
  ExprPtr left;
  ExprPtr right;
  Value evaluate(Frame& frame) const override;
  void each_child(const Visit& visit) override;
};

struct LogicExpr : Expr {
  bool is_and = true;
  ExprPtr left;
  ExprPtr right;
  Value evaluate(Frame& frame) const override;
  void each_child(const Visit& visit) override;
};

struct CompareExpr : Expr {
  enum class Op : std::uint8_t {
    equal,
    not_equal,
    less,
    less_equal,
    greater,
    greater_equal,
    in,
    not_in
  };
  ExprPtr first;
  std::vector<std::pair<Op, ExprPtr>> rest;
  Value evaluate(Frame& frame) const override;
  void each_child(const Visit& visit) override;
};

struct ConcatExpr : Expr {
  ExprList items;
  Value evaluate(Frame& frame) const override;
  void each_child(const Visit& visit) override;
};

struct ConditionalExpr : Expr {
  ExprPtr test;
  ExprPtr then;
  ExprPtr otherwise;  // may be null
  Value evaluate(Frame& frame) const override;
  void each_child(const Visit& visit) override;
  void bind(Binder& binder) override;
};

struct AttributeExpr : Expr {
  ExprPtr object;
  Value name;
  Value evaluate(Frame& frame) const override;
  void each_child(const Visit& visit) override { visit(*object); }
};

struct ItemExpr : Expr {
  ExprPtr object;
  ExprPtr key;
  Value evaluate(Frame& frame) const override;
  void each_child(const Visit& visit) override;
};

struct SliceExpr : Expr {
  ExprPtr object;
  ExprPtr start;  // these may be null
  ExprPtr stop;
  ExprPtr step;
  Value evaluate(Frame& frame) const override;
  void each_child(const Visit& visit) override;
};

struct CallArguments {
  ExprList positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // *items
  ExprPtr double_star;  // **entries
  Arguments evaluate(Frame& frame) const;
  void each_child(const Node::Visit& visit);
};

struct CallExpr : Expr {
  ExprPtr callee;
  CallArguments arguments;
  Value evaluate(Frame& frame) const override { return call(frame, nullptr); }
  Value call(Frame& frame, const Value* caller) const;  // a call block passes its body as `caller`
  void each_child(const Visit& visit) override;
};

using FilterFunction = Value (*)(Evaluation&, const Value& subject, Arguments& arguments);
using TestFunction = bool (*)(Evaluation&, const Value& subject, Arguments& arguments);

struct FilterExpr : Expr {
  ExprPtr subject;  // null: the text of a filter or set block
  std::string name;
  CallArguments arguments;
  FilterFunction function = nullptr;  // null: fails where it is reached
  Value evaluate(Frame& frame) const override;
  Value apply(Frame& frame, const Value& block_text) const;
  void each_child(const Visit& visit) override;
  void bind(Binder& binder) override;
};

struct TestExpr : Expr {
  ExprPtr subject;
  std::string name;
  CallArguments arguments;
  TestFunction function = nullptr;
  Value evaluate(Frame& frame) const override;
  void each_child(const Visit& visit) override;
  void bind(Binder& binder) override;
};

}  // namespace quire::jinja
