#pragma once
// Context-free rules while they are written: expressions of lexemes (regular expressions over
// bytes) and calls of rules. Neighbouring lexemes melt into one, so that whatever is regular
// becomes a single automaton; a solid lexeme does not, which keeps its states the same wherever it
// stands.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/structured/regex/regex_store.h"

namespace quire::structured {

using RuleId = std::uint32_t;
using ExprId = std::uint32_t;

class Rules {
 public:
  enum class Kind : std::uint8_t { lexeme, solid, call, sequence, choice, repeat, graph, unlike };
  // Of a graph: `by` leads from one of its nodes to another.
  struct Arc {
    std::uint32_t from, to;
    ExprId by;
  };
  // One item or more, no two of which say the same, and what ends the list.
  struct Unlike {
    RegexId item, comma, close;
    std::uint32_t min, max;
    RegexId (*same)(RegexStore&, std::string_view item);  // all texts of items that say the same
  };
  struct Expr {
    Kind kind;
    std::uint32_t what = 0;  // regex, rule, the repeated expression, or the number of a list
    std::uint32_t min = 0, max = 0;
    std::vector<ExprId> parts = {};
    std::vector<Arc> arcs = {};
  };

  Rules(RegexStore& store, const GrammarLimits& limits) : store_(store), limits_(limits) {}

  RuleId add_rule();
  void define(RuleId rule, ExprId body) { bodies_[rule] = body; }

  ExprId empty() { return lexeme(kEmpty); }
  ExprId nothing() { return lexeme(kNothing); }
  ExprId lexeme(RegexId regex) { return add({Kind::lexeme, regex}); }
  ExprId solid(RegexId regex) { return add({Kind::solid, regex}); }
  ExprId call(RuleId rule) { return add({Kind::call, rule}); }
  ExprId sequence(const std::vector<ExprId>& parts);
  ExprId choice(const std::vector<ExprId>& parts);
  ExprId repeat(ExprId of, std::uint32_t min, std::uint32_t max);

  // What leads from node 0 to node 1.
  ExprId graph(std::uint32_t nodes, std::vector<Arc> arcs);

  ExprId unlike(const Unlike& list);

  const Expr& expr(ExprId id) const { return exprs_[id]; }
  const Unlike& unlike_list(std::uint32_t number) const { return unlike_[number]; }
  ExprId body(RuleId rule) const { return bodies_[rule]; }
  std::size_t rule_count() const { return bodies_.size(); }
  RegexStore& store() { return store_; }
  // True when the expression is one lexeme that may melt; it is then in `regex`.
  bool is_lexeme(ExprId id, RegexId& regex) const;
  // All that the expression says, if it is lexemes to choose from.
  std::optional<RegexId> regular(ExprId id, int depth = 0) const;

 private:
  ExprId add(Expr expr);

  RegexStore& store_;
  const GrammarLimits& limits_;
  std::vector<Expr> exprs_;
  std::vector<ExprId> bodies_;
  std::vector<Unlike> unlike_;
};

}  // namespace quire::structured
