#pragma once
// Rules as a recursive transition network: states joined by lexemes and calls. Left recursion has
// been rewritten and all that cannot end is gone, so that every state that is reached can be
// completed, and nothing calls itself without reading a byte first. Built once; closures are made
// on first use.

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/structured/grammar/rules.h"

namespace quire::structured {

using StateId = std::uint32_t;  // a place in a rule

class Network {
 public:
  struct Edge {
    std::uint32_t what;  // regex or rule
    StateId target;
    bool is_call;
    bool reads = false;  // its empty match does not count
  };
  // What a place offers, all that reads nothing passed over.
  struct Closure {
    std::vector<Edge> lexemes;
    std::vector<Edge> calls;
    bool final = false;  // the rule may end here
    bool only_final() const { return final && lexemes.empty() && calls.empty(); }
  };

  // Throws GrammarFailure{unsatisfiable} when the root matches no text.
  Network(Rules& rules, RuleId root, Meter& meter, const GrammarLimits& limits);

  const Closure& closure(StateId state);
  // The list that the place stands in, behind an item; null: in none.
  const Rules::Unlike* unlike_behind(StateId state) const {
    const auto found = unlike_.find(state);
    return found == unlike_.end() ? nullptr : &rules_.unlike_list(found->second);
  }
  StateId start(RuleId rule) const { return starts_[rule]; }
  // Rules in an order in which each comes before those that it may call at once.
  std::uint32_t rank(RuleId rule) const { return ranks_[rule]; }
  RuleId root() const { return root_; }
  bool accepts_empty() const { return nullable_[root_]; }
  std::size_t size() const { return states_.size(); }

 private:
  struct State {
    std::vector<Edge> edges;
    std::vector<StateId> skips;  // reached without reading
    bool final = false;
  };

  StateId add_state();
  void build(ExprId expr, StateId from, StateId to);
  void build_repeat(const Rules::Expr& expr, StateId from, StateId to);
  bool passes_empty(const Edge& edge) const;
  void find_nullable();
  std::vector<StateId> reach(StateId from) const;
  void rewrite_left_recursion();
  void rewrite_cycle(const std::vector<RuleId>& cycle);
  void drop_endless();
  void rank_rules();
  std::vector<std::vector<RuleId>> left_calls() const;

  Rules& rules_;
  Meter& meter_;
  const GrammarLimits& limits_;
  RuleId root_;
  std::vector<State> states_;
  std::vector<StateId> starts_;
  std::vector<std::vector<StateId>> members_;  // states of each rule
  std::vector<bool> nullable_;
  std::vector<std::uint32_t> ranks_;
  std::vector<std::unique_ptr<const Closure>> closures_;
  std::unordered_map<StateId, std::uint32_t> unlike_;  // states behind items, by the list's number
};

}  // namespace quire::structured
