#include "engine/structured/grammar/rules.h"

namespace quire::structured {

RuleId Rules::add_rule() {
  bodies_.push_back(nothing());
  return static_cast<RuleId>(bodies_.size() - 1);
}

ExprId Rules::add(Expr expr) {
  if (exprs_.size() >= limits_.grammar_states) {
    throw GrammarFailure(GrammarErrorKind::limit, "the grammar grows too large");
  }
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

bool Rules::is_lexeme(ExprId id, RegexId& regex) const {
  if (exprs_[id].kind != Kind::lexeme) return false;
  regex = exprs_[id].what;
  return true;
}

ExprId Rules::sequence(const std::vector<ExprId>& parts) {
  std::vector<ExprId> flat;
  RegexId run = kEmpty;  // lexemes that stand together
  const auto end_run = [&] {
    if (run != kEmpty) flat.push_back(lexeme(run));
    run = kEmpty;
  };
  const auto append = [&](const auto& self, ExprId part) -> void {
    RegexId regex = 0;
    if (is_lexeme(part, regex)) {
      run = store_.concat(run, regex);
    } else if (exprs_[part].kind == Kind::sequence) {
      for (const ExprId inner : std::vector<ExprId>(exprs_[part].parts)) self(self, inner);
    } else {
      end_run();
      flat.push_back(part);
    }
  };
  for (const ExprId part : parts) append(append, part);
  end_run();
  if (flat.empty()) return empty();
  if (flat.size() == 1) return flat[0];
  return add({Kind::sequence, 0, 0, 0, std::move(flat)});
}

ExprId Rules::choice(const std::vector<ExprId>& parts) {
  std::vector<ExprId> flat;
  std::vector<RegexId> lexemes;
  for (const ExprId part : parts) {
    RegexId regex = 0;
    if (is_lexeme(part, regex)) {
      lexemes.push_back(regex);
    } else {
      flat.push_back(part);
    }
  }
  if (!lexemes.empty()) {
    const RegexId united = store_.any_of(std::move(lexemes));
    if (united != kNothing || flat.empty()) flat.push_back(lexeme(united));
  }
  if (flat.empty()) return nothing();
  if (flat.size() == 1) return flat[0];
  return add({Kind::choice, 0, 0, 0, std::move(flat)});
}

ExprId Rules::repeat(ExprId of, std::uint32_t min, std::uint32_t max) {
  if (max == 0) return empty();
  if (min == 1 && max == 1) return of;
  RegexId regex = 0;
  if (is_lexeme(of, regex)) return lexeme(store_.repeat(regex, min, max));
  const std::uint64_t copies = max == kUnbounded ? min : max;
  if (copies > limits_.grammar_states / 4) {
    throw GrammarFailure(GrammarErrorKind::limit, "too many repetitions");
  }
  return add({Kind::repeat, of, min, max});
}

ExprId Rules::unlike(const Unlike& list) {
  unlike_.push_back(list);
  return add({Kind::unlike, static_cast<std::uint32_t>(unlike_.size() - 1)});
}

std::optional<RegexId> Rules::regular(ExprId id, int depth) const {
  constexpr int kMaxDepth = 16;
  if (depth > kMaxDepth) return std::nullopt;
  const Expr& expr = exprs_[id];
  if (expr.kind == Kind::lexeme || expr.kind == Kind::solid) return expr.what;
  if (expr.kind == Kind::call) return regular(bodies_[expr.what], depth + 1);
  if (expr.kind != Kind::choice) return std::nullopt;
  std::vector<RegexId> ways;
  for (const ExprId part : expr.parts) {
    const auto way = regular(part, depth + 1);
    if (!way) return std::nullopt;
    ways.push_back(*way);
  }
  return store_.any_of(std::move(ways));
}

ExprId Rules::graph(std::uint32_t nodes, std::vector<Arc> arcs) {
  if (nodes > limits_.grammar_states || arcs.size() > limits_.grammar_states) {
    throw GrammarFailure(GrammarErrorKind::limit, "the grammar grows too large");
  }
  return add({Kind::graph, nodes, 0, 0, {}, std::move(arcs)});
}

}  // namespace quire::structured
