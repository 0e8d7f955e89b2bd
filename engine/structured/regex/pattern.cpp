#include "engine/structured/regex/pattern.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/structured/regex/pattern_nodes.h"

namespace quire::structured {
namespace {

using Kind = PatternNode::Kind;

class Lowering {
 public:
  Lowering(RegexStore& store, PatternUse use, Spelling spelling)
      : store_(store), spelling_(spelling) {
    if (use == PatternUse::search) around_ = anything();
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
  void alternatives(std::vector<const PatternNode*> sequence, std::vector<RegexId>& out,
                    int depth) {
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
      if (i < from || i > to) {
        id = store_.concat(store_.nullable(lower(*sequence[i])) ? kEmpty : kNothing, id);
      } else {
        id = before(*sequence[i], id);
      }
    }
    return from > 0 ? id : store_.concat(around_, id);
  }

  RegexId anything() { return store_.repeat(chars_regex(store_, CharSet::all(), spelling_), 0); }

  // The node and then all that follows to the text's end, which is what look-ahead is about.
  RegexId before(const PatternNode& node, RegexId rest) {
    if (node.kind == Kind::end && is_ahead_) return store_.nullable(rest) ? kEmpty : kNothing;
    if (!node.looks && !(node.anchored && is_ahead_)) return store_.concat(lower(node), rest);
    switch (node.kind) {
      case Kind::ahead: {
        const bool outer = std::exchange(is_ahead_, true);
        const RegexId found = before(node.parts[0], anything());
        is_ahead_ = outer;
        return store_.all_of({node.negative ? store_.complement(found) : found, rest});
      }
      case Kind::choice: {
        std::vector<RegexId> parts;
        for (const PatternNode& part : node.parts) parts.push_back(before(part, rest));
        return store_.any_of(std::move(parts));
      }
      case Kind::sequence:
        for (auto it = node.parts.rbegin(); it != node.parts.rend(); ++it) rest = before(*it, rest);
        return rest;
      case Kind::repeat: {
        RegexId id = rest;
        for (std::uint32_t i = node.max; i-- > 0;) {
          id = before(node.parts[0], id);
          if (i >= node.min) id = store_.any_of({rest, id});
        }
        return id;
      }
      default:
        return store_.concat(lower(node), rest);
    }
  }

  RegexId lower(const PatternNode& node) {
    switch (node.kind) {
      case Kind::chars:
        return chars_regex(store_, node.chars, spelling_);
      case Kind::repeat:
        return store_.repeat(lower(node.parts[0]), node.min, node.max);
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
      case Kind::end:
        break;
      case Kind::ahead:
        throw GrammarFailure(GrammarErrorKind::unsupported,
                             "regular expression: look-ahead behind the end is not supported");
    }
    throw GrammarFailure(GrammarErrorKind::unsupported,
                         "regular expression: ^ and $ in a group in the middle are not supported");
  }

  RegexStore& store_;
  Spelling spelling_;
  RegexId around_ = kEmpty;
  bool is_ahead_ = false;  // in what is looked for, where anchors may stand anywhere
};

}  // namespace

RegexId parse_pattern(RegexStore& store, std::string_view pattern, PatternUse use,
                      Spelling spelling) {
  const PatternNode node = PatternParser(pattern, use == PatternUse::search).parse();
  return Lowering(store, use, spelling).whole(node);
}

}  // namespace quire::structured
