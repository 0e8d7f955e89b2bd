#include "engine/structured/grammar/ebnf.h"

#include <fmt/format.h>

#include <unordered_map>

#include "engine/structured/grammar/ebnf_parser.h"
#include "engine/structured/grammar/lark_parser.h"
#include "engine/structured/regex/pattern.h"

namespace quire::structured {
namespace {

// Rules that neither recur nor are large become regular expressions where they are used; the others
// stay rules.
class EbnfCompiler {
 public:
  EbnfCompiler(Rules& rules, std::vector<EbnfRule> source)
      : rules_(rules), source_(std::move(source)) {}

  RuleId compile(const std::string& start) {
    for (std::size_t i = 0; i < source_.size(); ++i) {
      if (!by_name_.emplace(source_[i].name, i).second) {
        fail(source_[i].line, fmt::format("the rule {} is defined twice", source_[i].name));
      }
      rule_ids_.push_back(rules_.add_rule());
    }
    if (by_name_.count(start) == 0) {
      throw GrammarFailure(GrammarErrorKind::syntax,
                           fmt::format("grammar: there is no rule \"{}\"", start));
    }
    made_.resize(source_.size());
    for (std::size_t i = 0; i < source_.size(); ++i) make(i, 0);
    return rule_ids_[by_name_.at(start)];
  }

 private:
  static constexpr std::size_t kMaxInlined = 2'000;
  struct Made {
    enum class State : std::uint8_t { no, busy, yes } state = State::no;
    ExprId body = 0;
    std::size_t size = 0;
  };

  [[noreturn]] static void fail(int line, const std::string& what) {
    throw GrammarFailure(GrammarErrorKind::syntax, fmt::format("grammar, line {}: {}", line, what));
  }

  void make(std::size_t index, int depth) {
    Made& made = made_[index];
    if (made.state != Made::State::no) return;
    made.state = Made::State::busy;
    std::size_t size = 0;
    const ExprId body = lower(source_[index].body, size, depth);
    made_[index].state = Made::State::yes;
    made_[index].body = body;
    made_[index].size = size;
    rules_.define(rule_ids_[index], body);
  }

  // What stands for a rule: itself if it is a small lexeme, else a call.
  ExprId use(const EbnfNode& node, std::size_t& size, int depth) {
    constexpr int kMaxChain = 1'000;
    const auto found = by_name_.find(node.text);
    if (found == by_name_.end()) fail(node.line, fmt::format("there is no rule {}", node.text));
    const std::size_t index = found->second;
    if (depth < kMaxChain) make(index, depth + 1);
    const Made& made = made_[index];
    RegexId regex = 0;
    if (made.state == Made::State::yes && made.size <= kMaxInlined &&
        rules_.is_lexeme(made.body, regex)) {
      size += made.size;
      return made.body;
    }
    ++size;
    return rules_.call(rule_ids_[index]);
  }

  ExprId regex(const EbnfNode& node) {
    try {
      const RegexId id =
          parse_pattern(rules_.store(), node.text, PatternUse::whole, Spelling::plain);
      return rules_.store().alive(id) ? rules_.lexeme(id) : rules_.nothing();
    } catch (const GrammarFailure& failure) {
      throw GrammarFailure(failure.kind(),
                           fmt::format("grammar, line {}: {}", node.line, failure.what()));
    }
  }

  ExprId lower(const EbnfNode& node, std::size_t& size, int depth) {
    RegexStore& store = rules_.store();
    size += 1 + node.text.size();
    switch (node.kind) {
      case EbnfNode::Kind::text:
        return rules_.lexeme(store.literal(node.text));
      case EbnfNode::Kind::chars:
        return rules_.lexeme(chars_regex(store, node.chars, Spelling::plain));
      case EbnfNode::Kind::regex:
        return regex(node);
      case EbnfNode::Kind::name:
        return use(node, size, depth);
      case EbnfNode::Kind::repeat:
        return rules_.repeat(lower(node.parts[0], size, depth), node.min, node.max);
      case EbnfNode::Kind::choice:
      case EbnfNode::Kind::sequence:
        break;
    }
    std::vector<ExprId> parts;
    for (const EbnfNode& part : node.parts) parts.push_back(lower(part, size, depth));
    return node.kind == EbnfNode::Kind::choice ? rules_.choice(parts) : rules_.sequence(parts);
  }

  Rules& rules_;
  std::vector<EbnfRule> source_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::vector<RuleId> rule_ids_;
  std::vector<Made> made_;
};

}  // namespace

RuleId parse_ebnf(Rules& rules, std::string_view text) {
  if (looks_like_lark(text)) return EbnfCompiler(rules, parse_lark(text)).compile("start");
  return EbnfCompiler(rules, EbnfParser(text).parse()).compile("root");
}

}  // namespace quire::structured
