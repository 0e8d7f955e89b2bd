// Derivatives (Brzozowski 1964; Owens, Reppy and Turon 2009 for the byte classes): one row of
// successors per expression, one entry per class of bytes that it cannot tell apart.

#include <algorithm>

#include "engine/structured/regex/regex_store.h"

namespace quire::structured {

// Splits the 256 bytes by sets and maps, keeping classes numbered without gaps.
struct RegexStore::Partition {
  ClassMap of{};
  unsigned classes = 1;

  void split(const ByteSet& set) {
    std::array<std::uint16_t, 256> inside;
    inside.fill(0xffff);
    std::array<std::uint16_t, 256> total{}, hit{};
    for (unsigned b = 0; b < 256; ++b) ++total[of[b]];
    set.for_each([&](std::uint8_t b) { ++hit[of[b]]; });
    set.for_each([&](std::uint8_t b) {
      const std::uint8_t old = of[b];
      if (hit[old] == total[old] && inside[old] == 0xffff) return;  // all of the class: no split
      if (inside[old] == 0xffff) inside[old] = static_cast<std::uint16_t>(classes++);
      of[b] = static_cast<std::uint8_t>(inside[old]);
    });
  }

  void split(const ClassMap& other, unsigned other_classes) {
    for (unsigned c = 1; c < other_classes; ++c) {
      ByteSet set;
      for (unsigned b = 0; b < 256; ++b) {
        if (other[b] == c) set.add(static_cast<std::uint8_t>(b));
      }
      split(set);
    }
  }
};

void RegexStore::refine(RegexId id, Partition& partition) {
  const Node node = nodes_[id];  // a copy: nodes_ may grow
  if (node.row != kNoRow) return partition.split(*maps_[node.map], map_sizes_[node.map]);
  meter_.count();
  const Nesting nesting(*this);
  switch (node.kind) {
    case Kind::nothing:
    case Kind::empty:
      return;
    case Kind::bytes:
      return partition.split(sets_[node.a]);
    case Kind::concat:
      refine(node.a, partition);
      if (nodes_[node.a].nullable) refine(node.b, partition);
      return;
    case Kind::any_of:
    case Kind::all_of:
      for (std::uint32_t i = 0; i < node.b; ++i) refine(children_[node.a + i], partition);
      return;
    case Kind::complement:
    case Kind::repeat:
      return refine(node.a, partition);
    case Kind::multiple:
      for (std::uint8_t c = '0'; c <= '9'; ++c) partition.split(ByteSet::of(c));
      return partition.split(ByteSet::of('.'));
    case Kind::distinct:
      return refine(spelled_out(id), partition);
  }
}

void RegexStore::make_row(RegexId id) {
  Partition partition;
  refine(id, partition);
  RegexHash key{0x51ed270b, partition.classes};
  for (unsigned b = 0; b < 256; b += 8) {
    std::uint64_t word = 0;
    for (unsigned i = 0; i < 8; ++i) word = word << 8 | partition.of[b + i];
    key = mix(Kind::nothing, {key.low, key.high, word});
  }
  const auto [found, is_new] = map_ids_.try_emplace(key, static_cast<std::uint16_t>(maps_.size()));
  if (is_new) {
    if (maps_.size() >= 0xffff) {
      throw GrammarFailure(GrammarErrorKind::limit, "too many different sets of characters");
    }
    maps_.push_back(std::make_unique<const ClassMap>(partition.of));
    map_sizes_.push_back(static_cast<std::uint16_t>(partition.classes));
  }
  nodes_[id].map = found->second;
  nodes_[id].row = static_cast<std::uint32_t>(rows_.size());
  rows_.insert(rows_.end(), partition.classes, kUnknown);
}

RegexId RegexStore::derive(RegexId id, std::uint8_t byte) {
  // The commonest shapes need no row.
  const Node& node = nodes_[id];
  if (node.kind == Kind::nothing || node.kind == Kind::empty) return kNothing;
  std::uint32_t set = 0;
  RegexId rest = 0;
  if (starts_with_bytes(id, set, rest)) return sets_[set].has(byte) ? rest : kNothing;
  if (node.row == kNoRow) make_row(id);
  const std::uint32_t at = nodes_[id].row + (*maps_[nodes_[id].map])[byte];
  if (rows_[at] != kUnknown) return rows_[at] & ~kRaw;
  const RegexId result = derivative(id, byte);
  rows_[at] = result | (nodes_[result].simple ? 0 : kRaw);
  return result;
}

RegexId RegexStore::derive_many(RegexId id, std::uint8_t byte) {
  const Node node = nodes_[id];
  std::vector<RegexId> parts;
  for (std::uint32_t i = 0; i < node.b; ++i) {
    const RegexId part = derive(children_[node.a + i], byte);
    if (part == kNothing && node.kind == Kind::all_of) return kNothing;
    if (part != kNothing) parts.push_back(part);
  }
  return node.kind == Kind::any_of ? any_of(std::move(parts)) : all_of(std::move(parts));
}

RegexId RegexStore::derivative(RegexId id, std::uint8_t byte) {
  meter_.count();
  const Nesting nesting(*this);
  const Node node = nodes_[id];  // a copy: nodes_ may grow
  switch (node.kind) {
    case Kind::nothing:
    case Kind::empty:
      return kNothing;
    case Kind::bytes:
      return sets_[node.a].has(byte) ? kEmpty : kNothing;
    case Kind::concat: {
      const RegexId first = concat(derive(node.a, byte), node.b);
      return nodes_[node.a].nullable ? any_of({first, derive(node.b, byte)}) : first;
    }
    case Kind::any_of:
    case Kind::all_of:
      return derive_many(id, byte);
    case Kind::complement:
      return complement(derive(node.a, byte));
    case Kind::repeat: {
      const std::uint32_t max = node.max == kUnbounded ? kUnbounded : node.max - 1;
      const RegexId one = derive(node.a, byte);
      if (one == kNothing) return kNothing;
      return concat(one, repeat(node.a, node.min == 0 ? 0 : node.min - 1, max));
    }
    case Kind::multiple:
      return derive_multiple(node, byte);
    case Kind::distinct:
      return derive(spelled_out(id), byte);
  }
  return kNothing;
}

RegexId RegexStore::derive_multiple(const Node& node, std::uint8_t byte) {
  const Multiple at = multiples_[node.a];
  if (byte == '.' && at.where == Digits::before_point) {
    return multiple(at.divisor, at.places, at.remainder, Digits::after_point);
  }
  if (byte < '0' || byte > '9') return kNothing;
  const unsigned digit = byte - '0';
  const std::uint64_t next = (at.remainder * 10 + digit) % at.divisor;
  if (at.where == Digits::integer || at.where == Digits::before_point) {
    return multiple(at.divisor, at.places, next, at.where);
  }
  if (at.places > 0) return multiple(at.divisor, at.places - 1, next, Digits::fraction);
  return digit == 0 ? multiple(at.divisor, 0, at.remainder, Digits::fraction) : kNothing;
}

RegexId RegexStore::step_slow(RegexId id, std::uint8_t byte) {
  if (nodes_[id].row == kNoRow) make_row(id);
  const std::uint32_t at = nodes_[id].row + (*maps_[nodes_[id].map])[byte];
  RegexId next = rows_[at] == kUnknown ? derivative(id, byte) : rows_[at] & ~kRaw;
  if (!alive(next)) next = kNothing;
  rows_[at] = next;
  return next;
}

bool RegexStore::alive(RegexId id) {
  const Node node = nodes_[id];  // a copy: nodes_ may grow
  if (node.simple) return id != kNothing;
  if (node.life != Life::unknown) return node.life == Life::alive;
  const Nesting nesting(*this);
  switch (node.kind) {
    case Kind::concat: {
      RegexId rest = id;
      bool all = true;
      for (; all && nodes_[rest].kind == Kind::concat; rest = nodes_[rest].b)
        all = alive(nodes_[rest].a);
      return known_life(id, all && alive(rest));
    }
    case Kind::any_of: {
      bool any = false;
      for (std::uint32_t i = 0; !any && i < node.b; ++i) any = alive(children_[node.a + i]);
      return known_life(id, any);
    }
    case Kind::repeat:
      return known_life(id, node.min == 0 || alive(node.a));
    default:
      return search_alive(id);
  }
}

bool RegexStore::known_life(RegexId id, bool is_alive) {
  nodes_[id].life = is_alive ? Life::alive : Life::dead;
  return is_alive;
}

RegexId RegexStore::after_class(RegexId id, unsigned wanted) {
  const auto& classes = *maps_[nodes_[id].map];
  const auto byte = std::find(classes.begin(), classes.end(), wanted) - classes.begin();
  return derive(id, static_cast<std::uint8_t>(byte));
}

// Until a complete text is found: all that lies on the way is alive. Whatever was seen when nothing
// was found is dead. Short texts are tried first; where those are many, one way is followed as far
// as it goes.
bool RegexStore::search_alive(RegexId start) {
  struct Step {
    RegexId id;
    std::uint32_t from;  // the step before
    unsigned next_class = 0;
  };
  constexpr std::size_t kBroad = 2'000;
  std::vector<Step> steps{{start, 0}};
  std::vector<std::uint32_t> open{
      0};  // steps that were not looked at to the end; the first or the last goes on
  std::unordered_map<RegexId, bool> visited{{start, true}};
  const auto ends = [&](RegexId id) {
    const Node& node = nodes_[id];
    return node.nullable || node.life == Life::alive || (node.simple && id != kNothing);
  };
  bool found = ends(start);
  std::uint32_t last = 0;
  for (std::size_t first = 0; !found && first < open.size();) {
    const bool is_broad = steps.size() < kBroad;
    const std::uint32_t at = is_broad ? open[first] : open.back();
    const RegexId id = steps[at].id;
    if (nodes_[id].row == kNoRow) make_row(id);
    if (steps[at].next_class >= map_sizes_[nodes_[id].map]) {
      is_broad ? void(++first) : open.pop_back();
      continue;
    }
    const RegexId next = after_class(id, steps[at].next_class++);
    if (next == kNothing || nodes_[next].life == Life::dead || !visited.emplace(next, true).second)
      continue;
    last = static_cast<std::uint32_t>(steps.size());
    steps.push_back({next, at});
    open.push_back(last);
    found = ends(next);
  }
  if (!found) {
    for (const Step& step : steps) nodes_[step.id].life = Life::dead;
    return false;
  }
  for (; last != 0; last = steps[last].from) nodes_[steps[last].id].life = Life::alive;
  return known_life(start, true);
}

std::string RegexStore::example(RegexId start) {
  struct Step {
    RegexId id;
    std::size_t from;
    std::uint8_t byte;
  };
  std::vector<Step> steps{{start, 0, 0}};
  std::unordered_map<RegexId, bool> visited{{start, true}};
  for (std::size_t at = 0; at < steps.size(); ++at) {
    if (nullable(steps[at].id)) {
      std::string text;
      for (; at != 0; at = steps[at].from) text += static_cast<char>(steps[at].byte);
      std::ranges::reverse(text);
      return text;
    }
    meter_.count();
    const ByteSet next_bytes = first_bytes(steps[at].id);
    next_bytes.for_each([&](std::uint8_t byte) {
      const RegexId next = step(steps[at].id, byte);
      if (visited.emplace(next, true).second) steps.push_back({next, at, byte});
    });
  }
  return {};
}

const ByteSet& RegexStore::first_bytes(RegexId id) {
  if (nodes_[id].first == kNoRow) {
    if (nodes_[id].row == kNoRow) make_row(id);
    const ClassMap classes = *maps_[nodes_[id].map];
    std::array<std::uint8_t, 256> live{};  // by class: 0 not asked, 1 alive, 2 dead
    ByteSet set;
    for (unsigned b = 0; b < 256; ++b) {
      std::uint8_t& answer = live[classes[b]];
      if (answer == 0) answer = step(id, static_cast<std::uint8_t>(b)) != kNothing ? 1 : 2;
      if (answer == 1) set.add(static_cast<std::uint8_t>(b));
    }
    nodes_[id].first = static_cast<std::uint32_t>(first_sets_.size());
    first_sets_.push_back(set);
  }
  return first_sets_[nodes_[id].first];
}

bool RegexStore::matches(RegexId id, std::string_view text) {
  for (const char c : text) {
    id = step(id, static_cast<std::uint8_t>(c));
    if (id == kNothing) return false;
  }
  return nullable(id);
}

}  // namespace quire::structured
