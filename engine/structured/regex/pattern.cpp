#include "engine/structured/regex/pattern.h"

#include <algorithm>
#include <optional>

#include "engine/structured/regex/pattern_nodes.h"

namespace quire::structured {
namespace {

using Kind = PatternNode::Kind;

class Lowering {
 public:
  Lowering(RegexStore& store, PatternUse use, Spelling spelling)
      : store_(store), spelling_(spelling) {
    if (use == PatternUse::search) {
      around_ = store.repeat(chars_regex(store, CharSet::all(), spelling), 0);
    }
  }

  // Every alternative by itself, because each may have anchors of its own.
  RegexId whole(const PatternNode& node) {
    std::vector<RegexId> parts;
    std::vector<const PatternNode*> sequence{&node};
    alternatives(std::move(sequence), parts, 0);
    return store_.any_of(std::move(parts));
  }

 private:
  // Opens groups at the ends until anchors there stand bare.
  void alternatives(std::vector<const PatternNode*> sequence, std::vector<RegexId>& out, int depth) {
    constexpr int kMaxAlternatives = 10'000;
    if (depth > 400 || out.size() > kMaxAlternatives) {
      throw GrammarFailure(GrammarErrorKind::limit,
                           "regular expression: too many alternatives with anchors");
    }
    for (const bool front : {true, false}) {
      std::size_t at = 0;
      if (!edge_group(sequence, front, at)) continue;
      const PatternNode& group = *sequence[at];
      const auto replaced = [&](std::span<const PatternNode> parts) {
        auto copy = sequence;
        copy.erase(copy.begin() + static_cast<std::ptrdiff_t>(at));
        std::vector<const PatternNode*> inner;
        for (const PatternNode& part : parts) inner.push_back(&part);
        copy.insert(copy.begin() + static_cast<std::ptrdiff_t>(at), inner.begin(), inner.end());
        return copy;
      };
      if (group.kind == Kind::sequence) return alternatives(replaced(group.parts), out, depth + 1);
      for (const PatternNode& part : group.parts) {
        alternatives(replaced({&part, 1}), out, depth + 1);
      }
      return;
    }
    out.push_back(anchored(sequence));
  }

  // The first part from this end that is not an anchor, if it has anchors inside.
  static bool edge_group(const std::vector<const PatternNode*>& sequence, bool front,
                         std::size_t& at) {
    const Kind mark = front ? Kind::start : Kind::end;
    std::size_t i = 0;
    while (i < sequence.size() && at_end(sequence, front, i)->kind == mark) ++i;
    if (i == sequence.size()) return false;
    at = front ? i : sequence.size() - 1 - i;
    const PatternNode& node = *sequence[at];
    const bool group = node.kind == Kind::sequence || node.kind == Kind::choice;
    return group && node.anchored;
  }
  static const PatternNode* at_end(const std::vector<const PatternNode*>& sequence, bool front,
                                   std::size_t i) {
    return front ? sequence[i] : sequence[sequence.size() - 1 - i];
  }

  // What stands before a ^ or behind a $ can only be empty.
  RegexId anchored(const std::vector<const PatternNode*>& sequence) {
    std::size_t from = 0, to = sequence.size();  // behind the last ^, and the first $
    for (std::size_t i = 0; i < sequence.size(); ++i) {
      if (sequence[i]->kind == Kind::start) from = i + 1;
      if (sequence[i]->kind == Kind::end) to = std::min(to, i);
    }
    RegexId id = to < sequence.size() ? kEmpty : around_;
    for (std::size_t i = sequence.size(); i-- > 0;) {
      if (sequence[i]->kind == Kind::start || sequence[i]->kind == Kind::end) continue;
      RegexId part = lower(*sequence[i]);
      if (i < from || i > to) part = store_.nullable(part) ? kEmpty : kNothing;
      id = store_.concat(part, id);
    }
    return from > 0 ? id : store_.concat(around_, id);
  }

  RegexId lower(const PatternNode& node) {
    switch (node.kind) {
      case Kind::chars: return chars_regex(store_, node.chars, spelling_);
      case Kind::repeat: return store_.repeat(lower(node.parts[0]), node.min, node.max);
      case Kind::choice: {
        std::vector<RegexId> parts;
        for (const PatternNode& part : node.parts) parts.push_back(lower(part));
        return store_.any_of(std::move(parts));
      }
      case Kind::sequence: {
        std::vector<RegexId> parts;
        for (const PatternNode& part : node.parts) parts.push_back(lower(part));
        RegexId id = kEmpty;
        for (auto it = parts.rbegin(); it != parts.rend(); ++it) id = store_.concat(*it, id);
        return id;
      }
      case Kind::start:
      case Kind::end: break;
    }
    throw GrammarFailure(GrammarErrorKind::unsupported,
                         "regular expression: ^ and $ in a group in the middle are not supported");
  }

  RegexStore& store_;
  Spelling spelling_;
  RegexId around_ = kEmpty;
};

}  // namespace

RegexId parse_pattern(RegexStore& store, std::string_view pattern, PatternUse use,
                      Spelling spelling) {
  const PatternNode node = PatternParser(pattern).parse();
  return Lowering(store, use, spelling).whole(node);
}

}  // namespace quire::structured
