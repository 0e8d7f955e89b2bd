#include "jinja/scope.h"

#include <algorithm>

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/syntax/statements.h"

namespace quire::jinja {

int Function::slot_of(const std::string& identifier) {
  return slots.try_emplace(identifier, int(slots.size())).first->second;
}

void Scope::enter(Evaluation& evaluation, Activation* locals) const {
  for (const Load& load : loads) {
    Value& slot = locals->slots[std::size_t(load.index)];
    switch (load.action) {
      case Action::parameter:
        break;
      case Action::resolve:
        slot = evaluation.resolve(load.name);
        break;
      case Action::alias:
        slot = variable(locals, load.source);
        break;
      case Action::undefined:
        slot = Value::missing();
        break;
    }
  }
}

void Scope::leave(Activation* locals) const {
  for (const Load& load : loads) locals->slots[std::size_t(load.index)] = Value::missing();
}

std::optional<Symbols::Variable> Symbols::find(const std::string& name) const {
  for (const Symbols* symbols = this; symbols != nullptr; symbols = symbols->parent_) {
    if (const auto found = symbols->refs_.find(name); found != symbols->refs_.end())
      return found->second;
  }
  return {};
}

void Symbols::define(const std::string& name, Origin origin) {
  const Variable variable{function_, function_->slot_of(std::to_string(level_) + variant_ + name)};
  refs_[name] = variable;
  set_origin(variable, std::move(origin));
}

void Symbols::set_origin(const Variable& variable, Origin origin) {
  const auto [place, is_new] = load_places_.try_emplace(variable, loads_.size());
  if (is_new) {
    loads_.emplace_back(variable, std::move(origin));
  } else {
    loads_[place->second].second = std::move(origin);
  }
}

void Symbols::load(const std::string& name) {
  if (!find(name)) define(name, {Scope::Action::resolve, name, {}});
}

void Symbols::store(const std::string& name) {
  stores_.insert(name);
  if (refs_.count(name) > 0) return;
  if (const auto outer = parent_ ? parent_->find(name) : std::nullopt) {
    define(name, {Scope::Action::alias, name, outer});
  } else {
    define(name, {Scope::Action::undefined, name, {}});
  }
}

void Symbols::declare_parameter(const std::string& name) {
  stores_.insert(name);
  define(name, {Scope::Action::parameter, name, {}});
}

void Symbols::merge_branches(const std::vector<Symbols>& branches) {
  constexpr std::size_t kMaxMergedNames = 1'000'000;
  std::set<std::string> new_stores;
  for (const Symbols& branch : branches) {
    if ((function_->merged_names += branch.refs_.size()) > kMaxMergedNames) {
      fail(ErrorKind::limit, "the template has too many names beside too many ifs");
    }
    for (const std::string& name : branch.stores_) {
      if (stores_.count(name) == 0) new_stores.insert(name);
    }
  }
  for (const Symbols& branch : branches) {
    for (const auto& [name, variable] : branch.refs_) refs_[name] = variable;
    for (const auto& [variable, origin] : branch.loads_) set_origin(variable, origin);
    stores_.insert(branch.stores_.begin(), branch.stores_.end());
  }
  for (const std::string& name : new_stores) {
    const auto outer = parent_ ? parent_->find(name) : std::nullopt;
    const Variable variable = *find(name);
    if (const auto place = load_places_.find(variable); place != load_places_.end()) {
      loads_[place->second].second = {outer ? Scope::Action::alias : Scope::Action::resolve, name,
                                      outer};
    }
  }
}

Slot Symbols::seen_from(const Variable& variable, const Function& from) {
  int hops = 0;
  for (const Function* function = &from; function != variable.function; function = function->outer)
    ++hops;
  return {hops, variable.index};
}

Slot Symbols::slot_of(const std::string& name, const Function& from) const {
  return seen_from(*find(name), from);
}

int Symbols::own_slot(const std::string& name) const { return refs_.at(name).index; }

Scope Symbols::scope(const Function& from) const {
  Scope scope;
  for (const auto& [variable, origin] : loads_) {
    const Slot source = origin.source ? seen_from(*origin.source, from) : Slot{};
    scope.loads.push_back({variable.index, origin.action, origin.name, source});
  }
  return scope;
}

std::vector<std::pair<std::string, Slot>> Symbols::visible_stores(const Function& from) const {
  std::map<std::string, Slot> visible;
  for (const Symbols* symbols = this; symbols != nullptr; symbols = symbols->parent_) {
    for (const std::string& name : symbols->stores_) visible.try_emplace(name, slot_of(name, from));
  }
  return {visible.begin(), visible.end()};
}

namespace {

void look_for(Node& node, std::set<std::string>& names, std::set<std::string>& undeclared) {
  if (const auto* name = dynamic_cast<const NameExpr*>(&node)) {
    if (names.count(name->name) == 0) return;
    if (name->use == NameExpr::Use::load) {
      undeclared.insert(name->name);
    } else {
      names.erase(name->name);
    }
    return;
  }
  if (dynamic_cast<const BlockStmt*>(&node) != nullptr) return;
  node.each_child([&](Node& child) { look_for(child, names, undeclared); });
}

}  // namespace

std::set<std::string> find_undeclared(const std::vector<Node*>& nodes,
                                      std::set<std::string> names) {
  std::set<std::string> undeclared;
  for (Node* node : nodes) look_for(*node, names, undeclared);
  return undeclared;
}

}  // namespace quire::jinja
