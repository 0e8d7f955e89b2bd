#include "engine/structured/regex/regex_store.h"

#include <algorithm>
#include <random>

namespace quire::structured {
namespace {

// Drawn once per process, so that nobody can prepare two expressions with one hash.
std::uint64_t process_seed() {
  static const std::uint64_t seed = [] {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
  }();
  return seed;
}

// splitmix64's finalizer.
std::uint64_t scramble(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

}  // namespace

RegexHash RegexStore::mix(Kind kind, std::initializer_list<std::uint64_t> words) const {
  RegexHash hash{process_seed() ^ static_cast<std::uint64_t>(kind), ~process_seed()};
  for (const std::uint64_t word : words) {
    hash.low = scramble(hash.low + word + 0x9e3779b97f4a7c15u);
    hash.high = scramble((hash.high ^ word) * 0xff51afd7ed558ccdu + hash.low);
  }
  return hash;
}

RegexStore::RegexStore(Meter& meter, const GrammarLimits& limits) : meter_(meter), limits_(limits) {
  nodes_.push_back({Kind::nothing, false, true, Life::dead});
  nodes_.push_back({Kind::empty, true, true, Life::alive});
  for (RegexId id : {kNothing, kEmpty}) {
    nodes_[id].hash = mix(nodes_[id].kind, {1});
    by_hash_.emplace(nodes_[id].hash, id);
  }
}

RegexId RegexStore::intern(Node node, RegexHash hash) {
  const auto [found, is_new] = by_hash_.try_emplace(hash, static_cast<RegexId>(nodes_.size()));
  if (!is_new) return found->second;
  if (nodes_.size() >= limits_.regex_nodes) {
    by_hash_.erase(found);
    throw GrammarFailure(GrammarErrorKind::limit, "the regular expressions grow too large");
  }
  node.hash = hash;
  nodes_.push_back(node);
  return found->second;
}

std::span<const RegexId> RegexStore::children(const Node& node) const {
  return {children_.data() + node.a, node.b};
}

RegexId RegexStore::bytes(const ByteSet& set) {
  if (set.empty()) return kNothing;
  const auto& w = set.words;
  const RegexHash hash = mix(Kind::bytes, {w[0], w[1], w[2], w[3]});
  const RegexId id = intern(
      {Kind::bytes, false, true, Life::alive, static_cast<std::uint32_t>(sets_.size())}, hash);
  if (nodes_[id].a == sets_.size()) sets_.push_back(set);
  return id;
}

RegexId RegexStore::literal(std::string_view text) {
  RegexId id = kEmpty;
  for (auto it = text.rbegin(); it != text.rend(); ++it) {
    id = concat(bytes(ByteSet::of(static_cast<std::uint8_t>(*it))), id);
  }
  return id;
}

RegexId RegexStore::concat(RegexId first, RegexId second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  // Always a list: (ab)c is a(bc).
  if (nodes_[first].kind == Kind::concat) {
    std::vector<RegexId> heads;
    for (; nodes_[first].kind == Kind::concat; first = nodes_[first].b) {
      heads.push_back(nodes_[first].a);
    }
    second = concat(first, second);
    for (auto it = heads.rbegin(); it != heads.rend(); ++it) second = concat(*it, second);
    return second;
  }
  const Node a = nodes_[first], b = nodes_[second];
  meter_.count();
  const RegexHash hash = mix(Kind::concat, {a.hash.low, a.hash.high, b.hash.low, b.hash.high});
  return intern(
      {Kind::concat, a.nullable && b.nullable, a.simple && b.simple, Life::unknown, first, second},
      hash);
}

RegexId RegexStore::concat(std::initializer_list<RegexId> parts) {
  RegexId id = kEmpty;
  for (auto it = std::rbegin(parts); it != std::rend(parts); ++it) id = concat(*it, id);
  return id;
}

RegexId RegexStore::with_children(Kind kind, const std::vector<RegexId>& parts, bool nullable) {
  meter_.count(static_cast<std::uint32_t>(parts.size()));
  bool simple = kind == Kind::any_of;
  RegexHash hash = mix(kind, {parts.size()});
  for (const RegexId part : parts) {
    // Children are ordered by content, so this is one hash per set, whatever their ids are.
    hash = mix(kind, {hash.low, hash.high, nodes_[part].hash.low, nodes_[part].hash.high});
    simple &= nodes_[part].simple;
  }
  const auto at = static_cast<std::uint32_t>(children_.size());
  const RegexId id = intern(
      {kind, nullable, simple, Life::unknown, at, static_cast<std::uint32_t>(parts.size())}, hash);
  if (nodes_[id].a == at) children_.insert(children_.end(), parts.begin(), parts.end());
  return id;
}

bool RegexStore::starts_with_bytes(RegexId id, std::uint32_t& set, RegexId& rest) const {
  const Node& node = nodes_[id];
  if (node.kind == Kind::bytes) {
    set = node.a;
    rest = kEmpty;
    return true;
  }
  if (node.kind != Kind::concat || nodes_[node.a].kind != Kind::bytes) return false;
  set = nodes_[node.a].a;
  rest = node.b;
  return true;
}

// [a]x | [b]x becomes [ab]x.
void RegexStore::merge_byte_heads(std::vector<RegexId>& parts) {
  std::vector<std::pair<RegexId, std::uint32_t>> heads;  // rest, set
  std::vector<RegexId> others;
  for (const RegexId part : parts) {
    std::uint32_t set = 0;
    RegexId rest = 0;
    if (starts_with_bytes(part, set, rest)) {
      heads.emplace_back(rest, set);
    } else {
      others.push_back(part);
    }
  }
  if (heads.size() < 2) return;
  std::sort(heads.begin(), heads.end());
  for (std::size_t i = 0; i < heads.size();) {
    ByteSet set = sets_[heads[i].second];
    std::size_t end = i + 1;
    for (; end < heads.size() && heads[end].first == heads[i].first; ++end) {
      set |= sets_[heads[end].second];
    }
    others.push_back(concat(bytes(set), heads[i].first));
    i = end;
  }
  parts = std::move(others);
}

RegexId RegexStore::any_of(std::vector<RegexId> parts) {
  std::vector<RegexId> flat;
  for (const RegexId part : parts) {
    if (nodes_[part].kind == Kind::any_of) {
      const auto inner = children(nodes_[part]);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else if (part != kNothing) {
      flat.push_back(part);
    }
  }
  merge_byte_heads(flat);
  const auto by_content = [&](RegexId x, RegexId y) {
    const RegexHash &a = nodes_[x].hash, &b = nodes_[y].hash;
    return a.low != b.low ? a.low < b.low : a.high < b.high;
  };
  std::sort(flat.begin(), flat.end(), by_content);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  bool nullable = false, others_nullable = false;
  for (const RegexId part : flat) {
    nullable |= nodes_[part].nullable;
    others_nullable |= part != kEmpty && nodes_[part].nullable;
  }
  if (others_nullable) std::erase(flat, kEmpty);
  if (flat.empty()) return kNothing;
  if (flat.size() == 1) return flat[0];
  const RegexId everything = complement(kNothing);
  if (std::find(flat.begin(), flat.end(), everything) != flat.end()) return everything;
  return with_children(Kind::any_of, flat, nullable);
}

RegexId RegexStore::all_of(std::vector<RegexId> parts) {
  std::vector<RegexId> flat;
  const RegexId everything = complement(kNothing);
  bool nullable = true;
  for (const RegexId part : parts) {
    nullable &= nodes_[part].nullable;
    if (part == kNothing) return kNothing;
    if (nodes_[part].kind == Kind::all_of) {
      const auto inner = children(nodes_[part]);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else if (part != everything) {
      flat.push_back(part);
    }
  }
  const auto by_content = [&](RegexId x, RegexId y) {
    const RegexHash &a = nodes_[x].hash, &b = nodes_[y].hash;
    return a.low != b.low ? a.low < b.low : a.high < b.high;
  };
  std::sort(flat.begin(), flat.end(), by_content);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return everything;
  if (flat.size() == 1) return flat[0];
  if (std::find(flat.begin(), flat.end(), kEmpty) != flat.end()) {
    return nullable ? kEmpty : kNothing;
  }
  return with_children(Kind::all_of, flat, nullable);
}

RegexId RegexStore::complement(RegexId of) {
  const Node node = nodes_[of];
  if (node.kind == Kind::complement) return node.a;
  const RegexHash hash = mix(Kind::complement, {node.hash.low, node.hash.high});
  return intern(
      {Kind::complement, !node.nullable, false, of == kNothing ? Life::alive : Life::unknown, of},
      hash);
}

RegexId RegexStore::repeat(RegexId of, std::uint32_t min, std::uint32_t max) {
  if (max == 0 || of == kEmpty) return kEmpty;
  if (of == kNothing) return min == 0 ? kEmpty : kNothing;
  const Node node = nodes_[of];
  if (node.nullable) min = 0;
  if (min == 1 && max == 1) return of;
  if (node.kind == Kind::repeat && node.min <= 1 && node.max == kUnbounded && max == kUnbounded) {
    return repeat(node.a, std::min(min, node.min));
  }
  const RegexHash hash = mix(Kind::repeat, {node.hash.low, node.hash.high, min, max});
  return intern({Kind::repeat, min == 0, node.simple, Life::unknown, of, 0, min, max}, hash);
}

RegexId RegexStore::literals(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  const auto build = [&](const auto& self, std::size_t from, std::size_t to,
                         std::size_t depth) -> RegexId {
    if (to - from == 1) return literal(std::string_view(texts[from]).substr(depth));
    std::vector<RegexId> parts;
    if (texts[from].size() == depth) {
      parts.push_back(kEmpty);
      ++from;
    }
    while (from < to) {
      std::size_t end = from + 1;
      while (end < to && texts[end][depth] == texts[from][depth]) ++end;
      // A run of bytes that all of them share is one literal, not a level of recursion each.
      std::size_t shared = depth + 1;
      while (shared < texts[from].size() && texts[end - 1].size() > shared &&
             texts[end - 1][shared] == texts[from][shared]) {
        ++shared;
      }
      const RegexId head = literal(std::string_view(texts[from]).substr(depth, shared - depth));
      parts.push_back(concat(head, self(self, from, end, shared)));
      from = end;
    }
    return any_of(std::move(parts));
  };
  return texts.empty() ? kNothing : build(build, 0, texts.size(), 0);
}

RegexId RegexStore::multiple(std::uint64_t divisor, int places, std::uint64_t remainder,
                             Digits where) {
  // Complete where the places that are still missing may all be zero.
  std::uint64_t rest = remainder;
  for (int i = 0; i < places; ++i) rest = rest * 10 % divisor;
  const bool complete = rest == 0 && where != Digits::after_point;
  const auto at = static_cast<std::uint32_t>(multiples_.size());
  const auto tail = static_cast<std::uint64_t>(places) << 8 | static_cast<std::uint64_t>(where);
  const RegexId id = intern({Kind::multiple, complete, false, Life::unknown, at},
                            mix(Kind::multiple, {divisor, remainder, tail}));
  if (nodes_[id].a == at) multiples_.push_back({divisor, remainder, places, where});
  return id;
}

std::size_t RegexStore::memory_bytes() const {
  constexpr std::size_t kMapEntry = 48;
  return nodes_.size() * (sizeof(Node) + kMapEntry) + (children_.size() + rows_.size()) * 4 +
         (sets_.size() + first_sets_.size()) * sizeof(ByteSet) + maps_.size() * 256;
}

}  // namespace quire::structured
