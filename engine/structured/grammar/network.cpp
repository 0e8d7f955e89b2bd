#include "engine/structured/grammar/network.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

namespace quire::structured {

Network::Network(Rules& rules, RuleId root, Meter& meter, const GrammarLimits& limits)
    : rules_(rules), meter_(meter), limits_(limits), root_(root) {
  for (RuleId rule = 0; rule < rules.rule_count(); ++rule) {
    const StateId start = add_state();
    const StateId end = add_state();
    starts_.push_back(start);
    states_[end].final = true;
    build(rules.body(rule), start, end);
    members_.emplace_back();
    for (StateId state = start; state < states_.size(); ++state) members_[rule].push_back(state);
  }
  find_nullable();
  rewrite_left_recursion();
  drop_endless();
  rank_rules();
  closures_.resize(states_.size());
  const Closure& first = closure(start(root_));
  if (first.lexemes.empty() && first.calls.empty() && !accepts_empty()) {
    throw GrammarFailure(GrammarErrorKind::unsatisfiable, "no text fits");
  }
}

StateId Network::add_state() {
  if (states_.size() >= limits_.grammar_states) {
    throw GrammarFailure(GrammarErrorKind::limit, "the grammar grows too large");
  }
  meter_.count();
  states_.emplace_back();
  return static_cast<StateId>(states_.size() - 1);
}

void Network::build(ExprId id, StateId from, StateId to) {
  const Rules::Expr& expr = rules_.expr(id);
  switch (expr.kind) {
    case Rules::Kind::lexeme:
    case Rules::Kind::solid:
      if (expr.what == kEmpty) {
        states_[from].skips.push_back(to);
      } else if (rules_.store().alive(expr.what)) {
        states_[from].edges.push_back({expr.what, to, false, false});
      }
      return;
    case Rules::Kind::call:
      states_[from].edges.push_back({expr.what, to, true, false});
      return;
    case Rules::Kind::choice:
      for (const ExprId part : expr.parts) build(part, from, to);
      return;
    case Rules::Kind::sequence:
      for (std::size_t i = 0; i + 1 < expr.parts.size(); ++i) {
        const StateId next = add_state();
        build(expr.parts[i], from, next);
        from = next;
      }
      return build(expr.parts.back(), from, to);
    case Rules::Kind::repeat:
      return build_repeat(expr, from, to);
    case Rules::Kind::graph: {
      std::vector<StateId> nodes{from, to};
      while (nodes.size() < expr.what) nodes.push_back(add_state());
      for (const Rules::Arc& arc : expr.arcs) build(arc.by, nodes[arc.from], nodes[arc.to]);
      return;
    }
    case Rules::Kind::unlike: {
      const Rules::Unlike& list = rules_.unlike_list(expr.what);
      const StateId before = add_state(), behind = add_state();
      states_[from].skips.push_back(before);
      states_[before].edges.push_back({list.item, behind, false, false});
      states_[behind].edges.push_back({list.comma, before, false, false});
      states_[behind].edges.push_back({list.close, to, false, false});
      unlike_[behind] = expr.what;
      return;
    }
  }
}

void Network::build_repeat(const Rules::Expr& expr, StateId from, StateId to) {
  const auto once = [&] {
    const StateId next = add_state();
    build(expr.what, from, next);
    from = next;
  };
  for (std::uint32_t i = 0; i < expr.min; ++i) once();
  if (expr.max == kUnbounded) {
    const StateId loop = add_state();
    states_[from].skips.push_back(loop);
    build(expr.what, loop, loop);
    from = loop;
  } else {
    for (std::uint32_t i = expr.min; i < expr.max; ++i) {
      states_[from].skips.push_back(to);
      once();
    }
  }
  states_[from].skips.push_back(to);
}

bool Network::passes_empty(const Edge& edge) const {
  if (edge.reads) return false;
  return edge.is_call ? nullable_[edge.what] : rules_.store().nullable(edge.what);
}

// All places that can be had from here without reading a byte, this one first.
std::vector<StateId> Network::reach(StateId from) const {
  std::vector<StateId> found{from};
  std::unordered_map<StateId, bool> seen{{from, true}};
  for (std::size_t i = 0; i < found.size(); ++i) {
    meter_.count();
    const auto visit = [&](StateId next) {
      if (seen.emplace(next, true).second) found.push_back(next);
    };
    for (const StateId next : states_[found[i]].skips) visit(next);
    for (const Edge& edge : states_[found[i]].edges) {
      if (passes_empty(edge)) visit(edge.target);
    }
  }
  return found;
}

void Network::find_nullable() {
  nullable_.assign(starts_.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (RuleId rule = 0; rule < starts_.size(); ++rule) {
      if (nullable_[rule]) continue;
      for (const StateId state : reach(starts_[rule])) {
        if (states_[state].final) nullable_[rule] = changed = true;
      }
    }
  }
}

std::vector<std::vector<RuleId>> Network::left_calls() const {
  std::vector<std::vector<RuleId>> calls(starts_.size());
  for (RuleId rule = 0; rule < starts_.size(); ++rule) {
    for (const StateId state : reach(starts_[rule])) {
      for (const Edge& edge : states_[state].edges) {
        if (edge.is_call) calls[rule].push_back(edge.what);
      }
    }
    std::sort(calls[rule].begin(), calls[rule].end());
    calls[rule].erase(std::unique(calls[rule].begin(), calls[rule].end()), calls[rule].end());
  }
  return calls;
}

namespace {

// Tarjan's strongly connected components; callees come before their callers. Iterative, because
// grammars may be deep.
std::vector<std::vector<RuleId>> components(const std::vector<std::vector<RuleId>>& calls) {
  constexpr std::uint32_t kNone = 0xffffffff;
  std::vector<std::uint32_t> index(calls.size(), kNone), low(calls.size());
  std::vector<bool> open(calls.size());
  std::vector<RuleId> stack;
  std::vector<std::pair<RuleId, std::size_t>> way;
  std::vector<std::vector<RuleId>> found;
  std::uint32_t next = 0;
  for (RuleId root = 0; root < calls.size(); ++root) {
    if (index[root] != kNone) continue;
    way.emplace_back(root, 0);
    while (!way.empty()) {
      auto& [rule, at] = way.back();
      if (at == 0 && index[rule] == kNone) {
        index[rule] = low[rule] = next++;
        stack.push_back(rule);
        open[rule] = true;
      }
      if (at < calls[rule].size()) {
        const RuleId callee = calls[rule][at++];
        if (index[callee] == kNone) {
          way.emplace_back(callee, 0);
        } else if (open[callee]) {
          low[rule] = std::min(low[rule], index[callee]);
        }
        continue;
      }
      const RuleId done = rule;
      way.pop_back();
      if (!way.empty()) low[way.back().first] = std::min(low[way.back().first], low[done]);
      if (low[done] != index[done]) continue;
      auto& component = found.emplace_back();
      do {
        component.push_back(stack.back());
        open[stack.back()] = false;
        stack.pop_back();
      } while (component.back() != done);
    }
  }
  return found;
}

}  // namespace

void Network::rewrite_left_recursion() {
  const auto calls = left_calls();
  for (const auto& component : components(calls)) {
    const RuleId first = component[0];
    const bool itself = std::binary_search(calls[first].begin(), calls[first].end(), first);
    if (component.size() > 1 || itself) rewrite_cycle(component);
  }
}

// For each rule A of the cycle an automaton of its own: it begins with whatever any rule of the
// cycle can begin with other than a rule of the cycle; where a rule B has ended, it goes on behind
// every place that begins by calling B; it ends where A has ended.
void Network::rewrite_cycle(const std::vector<RuleId>& cycle) {
  const auto inside = [&](RuleId rule) {
    return std::find(cycle.begin(), cycle.end(), rule) != cycle.end();
  };
  struct LeftCall {
    RuleId callee;
    StateId target;
  };
  std::vector<LeftCall> left;
  std::vector<Edge> beginnings;
  std::vector<std::pair<StateId, RuleId>> all;
  for (const RuleId rule : cycle) {
    for (const StateId state : members_[rule]) all.emplace_back(state, rule);
    for (const StateId state : reach(starts_[rule])) {
      for (const Edge& edge : states_[state].edges) {
        if (edge.is_call && inside(edge.what)) {
          left.push_back({edge.what, edge.target});
        } else {
          beginnings.push_back(edge);
        }
      }
    }
  }
  for (const RuleId goal : cycle) {
    std::unordered_map<StateId, StateId> copy;
    std::vector<StateId> members;
    const StateId start = add_state();
    members.push_back(start);
    for (const auto& [state, rule] : all) {
      copy[state] = add_state();
      members.push_back(copy[state]);
    }
    for (const auto& [state, rule] : all) {
      const State original = states_[state];
      State& made = states_[copy[state]];
      for (const Edge& edge : original.edges) {
        made.edges.push_back({edge.what, copy[edge.target], edge.is_call, edge.reads});
      }
      for (const StateId skip : original.skips) made.skips.push_back(copy[skip]);
      if (!original.final) continue;
      made.final = rule == goal;
      for (const LeftCall& call : left) {
        if (call.callee == rule) made.skips.push_back(copy[call.target]);
      }
    }
    for (const Edge& edge : beginnings) {
      // What follows its empty match is among the beginnings by itself.
      states_[start].edges.push_back({edge.what, copy[edge.target], edge.is_call, true});
    }
    starts_[goal] = start;
    members_[goal] = std::move(members);
  }
}

// A state that leads to no end, and every edge to it, goes: what is reached can then be completed.
void Network::drop_endless() {
  std::vector<bool> ends(states_.size());
  const auto passable = [&](const Edge& edge) {
    return ends[edge.target] && (!edge.is_call || nullable_[edge.what] || ends[starts_[edge.what]]);
  };
  struct Way {
    StateId from;
    const Edge* edge;  // null: a skip
  };
  std::vector<std::vector<Way>> ways(states_.size());  // by where they lead, or what they call
  std::vector<StateId> open;
  const auto add = [&](StateId state) {
    if (ends[state]) return;
    ends[state] = true;
    open.push_back(state);
  };
  for (StateId state = 0; state < states_.size(); ++state) {
    meter_.count();
    for (const StateId next : states_[state].skips) ways[next].push_back({state, nullptr});
    for (const Edge& edge : states_[state].edges) {
      ways[edge.target].push_back({state, &edge});
      if (edge.is_call && !nullable_[edge.what]) ways[starts_[edge.what]].push_back({state, &edge});
    }
    if (states_[state].final) add(state);
  }
  while (!open.empty()) {
    const StateId state = open.back();
    open.pop_back();
    for (const Way& way : ways[state]) {
      meter_.count();
      if (way.edge == nullptr || passable(*way.edge)) add(way.from);
    }
  }
  for (State& state : states_) {
    std::erase_if(state.edges, [&](const Edge& edge) { return !passable(edge); });
    std::erase_if(state.skips, [&](StateId next) { return !ends[next]; });
  }
}

void Network::rank_rules() {
  const auto order = components(left_calls());
  ranks_.resize(starts_.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const RuleId rule : order[i]) ranks_[rule] = static_cast<std::uint32_t>(order.size() - i);
  }
}

const Network::Closure& Network::closure(StateId state) {
  if (closures_[state] != nullptr) return *closures_[state];
  auto closure = std::make_unique<Closure>();
  std::unordered_map<StateId, std::vector<RegexId>> by_target;
  std::vector<StateId> targets;
  for (const StateId here : reach(state)) {
    closure->final |= states_[here].final;
    for (const Edge& edge : states_[here].edges) {
      if (edge.is_call) {
        closure->calls.push_back(edge);
        continue;
      }
      auto& regexes = by_target[edge.target];
      if (regexes.empty()) targets.push_back(edge.target);
      regexes.push_back(edge.what);
    }
  }
  for (const StateId target : targets) {
    closure->lexemes.push_back({rules_.store().any_of(by_target[target]), target, false, false});
  }
  closures_[state] = std::move(closure);
  return *closures_[state];
}

}  // namespace quire::structured
