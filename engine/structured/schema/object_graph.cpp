// The graph of an object's members: engine/structured/schema/object_rules.h.

#include <fmt/format.h>

#include <algorithm>

#include "engine/structured/schema/object_rules.h"

namespace quire::structured {

// Where the writing of an object's members stands. A position is the number of listed keys that are
// behind, and once these are done which of the free keys are written.
struct ObjectRules::Place {
  enum Role : std::uint32_t {
    fresh,   // nothing is written yet
    behind,  // a member is written
    wanted   // a comma is written, so that a member must come
  };
  Role role;
  std::uint32_t position, count;  // count: members written
};

struct ObjectRules::Graph {
  static constexpr std::uint32_t kBegin = 0, kEnd = 1;

  std::uint32_t listed, sets;  // positions of either kind
  std::uint32_t least, most;   // members
  std::uint32_t cap;           // counts above it are all alike
  std::vector<Rules::Arc> arcs = {};

  std::uint32_t num_positions() const { return listed + sets; }
  std::uint64_t num_places() const {
    return std::uint64_t{num_positions()} * (std::uint64_t{cap} + 1) * 3 + 2;
  }
  std::uint32_t number_of(Place place) const {
    return 2 + (place.position * (cap + 1) + place.count) * 3 + place.role;
  }
  bool is_full(std::uint32_t count) const { return most != kUnbounded && count >= most; }
  // Behind another member than those of a place.
  Place after_member(Place from, std::uint32_t position) const {
    return {Place::behind, position, std::min(from.count + 1, cap)};
  }
  void add(Place from, Place to, ExprId by) {
    arcs.push_back({number_of(from), number_of(to), by});
  }
  void end(Place from, ExprId by) { arcs.push_back({number_of(from), kEnd, by}); }
};

struct ObjectRules::Members {
  std::vector<ExprId> listed, free;  // as keys_ and free_
  ExprId other;
};

ObjectRules::Graph ObjectRules::empty_graph() const {
  auto needed = static_cast<std::uint32_t>(free_.size());
  for (const Key& key : keys_) needed += key.required ? 1 : 0;
  const bool may_exceed = max_ < keys_.size() + free_.size() || !others_.empty();
  Graph graph{.listed = static_cast<std::uint32_t>(keys_.size()),
              .sets = std::uint32_t{1} << free_.size(),
              .least = min_ > needed ? min_ : 0,
              .most = max_ != kUnbounded && may_exceed ? max_ : kUnbounded,
              .cap = 0};
  graph.cap = graph.most != kUnbounded ? graph.most : graph.least;
  if (graph.num_places() > values_.limits_.grammar_states) {
    throw GrammarFailure(
        GrammarErrorKind::limit,
        fmt::format(
            "members are counted (minProperties, maxProperties) up to about {} here, not {}",
            values_.limits_.grammar_states / 3 / graph.num_positions(), graph.cap),
        values_.document_.at(what_.schemas.empty() ? 0 : what_.schemas[0]).pointer);
  }
  return graph;
}

ObjectRules::Members ObjectRules::make_members() {
  Rules& rules = values_.rules_;
  const auto member = [&](const Key& key) {
    return rules.sequence({rules.lexeme(values_.style_.key(key.name)), key.value});
  };
  Members members;
  std::vector<ExprId> others;
  for (const Key& key : keys_) members.listed.push_back(member(key));
  for (const Key& key : free_) members.free.push_back(member(key));
  for (const Others& other : others_)
    others.push_back(rules.sequence({rules.solid(other.key), other.value}));
  members.other = rules.choice(others);
  return members;
}

// By position: nothing that is required is missing.
std::vector<bool> ObjectRules::may_end(const Graph& graph) const {
  std::vector<bool> may(graph.num_positions(), false);
  may.back() = true;
  if (!free_.empty()) return may;
  for (std::uint32_t i = graph.listed; i-- > 0;) may[i] = may[i + 1] && !keys_[i].required;
  return may;
}

// Adds what may be written at a place where a member may begin.
void ObjectRules::add_members(Graph& graph, Place here, const Members& members) const {
  const auto [role, position, count] = here;
  const bool is_full = graph.is_full(count);
  if (position < graph.listed) {
    const std::uint32_t next = position + 1;
    if (!is_full) graph.add(here, graph.after_member(here, next), members.listed[position]);
    if (!keys_[position].required) graph.add(here, {role, next, count}, values_.rules_.empty());
    return;
  }
  if (is_full) return;
  if (!others_.empty()) graph.add(here, graph.after_member(here, position), members.other);
  const std::uint32_t written = position - graph.listed;
  for (std::uint32_t k = 0; k < free_.size(); ++k) {
    const std::uint32_t bit = std::uint32_t{1} << k;
    if (written & bit) continue;
    graph.add(here, graph.after_member(here, graph.listed + (written | bit)), members.free[k]);
  }
}

ExprId ObjectRules::graph() {
  Rules& rules = values_.rules_;
  Graph graph = empty_graph();
  graph.arcs.push_back({Graph::kBegin, graph.number_of({Place::fresh, 0, 0}),
                        rules.lexeme(values_.style_.open('{'))});
  const ExprId comma = rules.lexeme(values_.style_.comma());
  const ExprId closing = rules.lexeme(values_.style_.close('}'));
  const ExprId bare = rules.lexeme(values_.store_.literal("}"));
  const Members members = make_members();
  const std::vector<bool> can_end = may_end(graph);
  for (std::uint32_t i = 0; i < graph.num_positions(); ++i) {
    for (std::uint32_t c = 0; c <= graph.cap; ++c) {
      for (const Place::Role role : {Place::fresh, Place::wanted})
        add_members(graph, {role, i, c}, members);
      const Place behind{Place::behind, i, c};
      if (!graph.is_full(c)) graph.add(behind, {Place::wanted, i, c}, comma);
      if (c < graph.least || !can_end[i]) continue;
      graph.end(behind, closing);
      if (i >= graph.listed && c == 0) graph.end({Place::fresh, i, c}, bare);
    }
  }
  return rules.graph(static_cast<std::uint32_t>(graph.num_places()), std::move(graph.arcs));
}

}  // namespace quire::structured
