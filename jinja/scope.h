#pragma once
// Which variable a name means. Follows jinja2's compiler: a scope knows, before anything runs,
// every name that its body reads or sets; a name set in an inner scope starts there as a copy of
// the outer one.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::jinja {

class Evaluation;
struct Activation;
struct Node;
struct BlockStmt;

// A unit with variables of its own: the template, a macro, a call block's body, a block, a
// recursive loop.
struct Function {
  const Function* outer = nullptr;
  std::map<std::string, int> slots;
  std::size_t merged_names = 0;  // work of binding ifs: names times branches
  int slot_of(const std::string& identifier);
};

// A variable as seen from the running function.
struct Slot {
  int hops = 0;  // functions outwards
  int index = -1;
};

// How a scope's variables come to be when it is entered.
struct Scope {
  enum class Action : std::uint8_t { parameter, resolve, alias, undefined };
  struct Load {
    int index;
    Action action;
    std::string name;  // to resolve
    Slot source;       // to copy
  };
  std::vector<Load> loads;

  void enter(Evaluation& evaluation, Activation* locals) const;
  void leave(Activation* locals) const;  // its variables are no more
};

// The names of one scope while templates are being bound.
class Symbols {
 public:
  Symbols(Function& function, const Symbols* parent, std::string variant = "")
      : function_(&function),
        parent_(parent),
        level_(parent ? parent->level_ + 1 : 0),
        variant_(std::move(variant)) {}

  void load(const std::string& name);
  void store(const std::string& name);
  void declare_parameter(const std::string& name);
  // The effects of an if's branches, of which one will run.
  void merge_branches(const std::vector<Symbols>& branches);

  const Symbols* parent() const { return parent_; }
  Slot slot_of(const std::string& name, const Function& from) const;
  int own_slot(const std::string& name) const;
  Scope scope(const Function& from) const;
  std::vector<std::pair<std::string, Slot>> visible_stores(const Function& from) const;

 private:
  struct Variable {
    Function* function;
    int index;
    friend auto operator<=>(const Variable&, const Variable&) = default;
  };
  struct Origin {
    Scope::Action action;
    std::string name;
    std::optional<Variable> source;
  };
  std::optional<Variable> find(const std::string& name) const;
  void define(const std::string& name, Origin origin);
  void set_origin(const Variable& variable, Origin origin);
  static Slot seen_from(const Variable& variable, const Function& from);

  Function* function_;
  const Symbols* parent_;
  int level_;
  // Keeps scopes apart that would share variables: a loop's test and its body.
  std::string variant_;
  std::map<std::string, Variable> refs_;
  std::vector<std::pair<Variable, Origin>> loads_;  // in order of definition
  std::map<Variable, std::size_t> load_places_;     // where in loads_
  std::set<std::string> stores_;
};

// The place in the template that is being bound.
struct Binder {
  Function* function;
  Symbols* symbols;
  bool top_level = false;
  bool soft = false;     // inside if: unknown filters and tests fail only when reached
  bool in_loop = false;  // of the same function
  std::vector<BlockStmt*>* blocks;

  Binder inner(Symbols& inner_symbols) const {
    return {function, &inner_symbols, false, false, in_loop, blocks};
  }
  Slot slot_of(const std::string& name) const { return symbols->slot_of(name, *function); }
};

// Those of `names` that the nodes read before setting them.
std::set<std::string> find_undeclared(const std::vector<Node*>& nodes, std::set<std::string> names);

}  // namespace quire::jinja
