#include "engine/structured/grammar/lark_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/structured/grammar/lark_common.h"

namespace quire::structured {
namespace {

using Kind = EbnfNode::Kind;

constexpr int kMaxDepth = 200;

bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) {
  return is_upper(c) || (c >= 'a' && c <= 'z') || is_digit(c) || c == '_';
}

// By the first letter of its name.
bool is_terminal(std::string_view name) {
  const auto letter = name.find_first_not_of('_');
  return letter != std::string_view::npos && is_upper(name[letter]);
}

EbnfNode node_of(Kind kind, std::string text, int line) {
  EbnfNode node;
  node.kind = kind;
  node.text = std::move(text);
  node.line = line;
  return node;
}

EbnfNode repeated(EbnfNode inner, std::uint32_t min, std::uint32_t max) {
  EbnfNode node = node_of(Kind::repeat, "", inner.line);
  node.parts.push_back(std::move(inner));
  node.min = min;
  node.max = max;
  return node;
}

EbnfNode joined(Kind kind, std::vector<EbnfNode> parts, int line) {
  if (parts.size() == 1) return std::move(parts[0]);
  EbnfNode node = node_of(kind, "", line);
  node.parts = std::move(parts);
  return node;
}

std::string escaped_for_regex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}-/").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

class LarkParser {
 public:
  explicit LarkParser(std::string_view text) : text_(text) {}

  std::vector<EbnfRule> parse() {
    for (skip_lines(); !done(); skip_lines()) statement();
    if (!ignored_.empty()) {
      for (EbnfRule& rule : rules_) {
        if (!is_terminal(rule.name)) insert_ignored(rule.body);
      }
      rules_.push_back(
          {kIgnored, repeated(joined(Kind::choice, std::move(ignored_), 0), 0, kUnbounded), 0});
    }
    return std::move(rules_);
  }

 private:
  static constexpr const char* kIgnored = "%ignored";  // no name of a client's

  [[noreturn]] void fail(const std::string& what,
                         GrammarErrorKind kind = GrammarErrorKind::syntax) const {
    throw GrammarFailure(kind, fmt::format("grammar (Lark), line {}: {}", line_, what));
  }
  [[noreturn]] void unsupported(const std::string& what) const {
    fail(what + " not supported", GrammarErrorKind::unsupported);
  }
  bool done() const { return at_ >= text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\r') ++at_;
    if (peek() == '#' || text_.substr(at_, 2) == "//") {
      while (!done() && peek() != '\n') ++at_;
    }
  }
  void skip_lines() {
    for (skip_blanks(); peek() == '\n'; skip_blanks()) {
      ++at_;
      ++line_;
    }
  }
  // Within a rule a line goes on in the next one where that begins with |, and in brackets.
  void skip_within(int depth) {
    skip_blanks();
    if (peek() != '\n') return;
    const std::size_t here = at_;
    const int line = line_;
    skip_lines();
    if (depth > 0 || peek() == '|') return;
    at_ = here;
    line_ = line;
  }
  std::string name() {
    const std::size_t from = at_;
    while (is_name_char(peek())) ++at_;
    return std::string(text_.substr(from, at_ - from));
  }
  std::uint32_t number() {
    if (!is_digit(peek())) fail("expected a number");
    std::uint64_t value = 0;
    for (; is_digit(peek()); ++at_) {
      value = value * 10 + static_cast<unsigned>(peek() - '0');
      if (value > 1'000'000) fail("too many repetitions", GrammarErrorKind::limit);
    }
    return static_cast<std::uint32_t>(value);
  }

  void statement() {
    if (take("%")) return directive();
    while (peek() == '?' || peek() == '!') ++at_;
    EbnfRule rule;
    rule.line = line_;
    rule.name = name();
    if (rule.name.empty()) fail("expected the name of a rule");
    if (peek() == '{') unsupported("templates are");
    if (take(".")) {  // a priority
      take("-");
      number();
    }
    skip_blanks();
    if (!take(":")) fail(fmt::format("expected : after {}", rule.name));
    rule.body = choice(0);
    rules_.push_back(std::move(rule));
    end_of_statement();
  }
  void end_of_statement() {
    skip_blanks();
    if (!done() && peek() != '\n') fail(fmt::format("unexpected \"{}\"", peek()));
  }

  void directive() {
    const std::string word = name();
    skip_blanks();
    if (word == "ignore") {
      ignored_.push_back(choice(0));
    } else if (word == "import") {
      import();
    } else {
      unsupported("%" + word + " is");
    }
    end_of_statement();
  }

  // common.NAME, common.NAME -> OTHER, common (NAME, NAME)
  void import() {
    if (!take("common")) unsupported("%import of anything but common is");
    if (take(".")) {
      const std::string what = name();
      skip_blanks();
      std::string as = what;
      if (take("->")) {
        skip_blanks();
        as = name();
      }
      return add_common(what, std::move(as));
    }
    skip_blanks();
    if (!take("(")) fail("expected . or ( after common");
    do {
      skip_within(1);
      const std::string what = name();
      add_common(what, what);
      skip_within(1);
    } while (take(","));
    if (!take(")")) fail("a list without an end");
  }
  void add_common(const std::string& what, std::string as) {
    const auto pattern = lark_common(what);
    if (!pattern) fail(fmt::format("common has no {}", what), GrammarErrorKind::unsupported);
    rules_.push_back({std::move(as), node_of(Kind::regex, std::string(*pattern), line_), line_});
  }

  EbnfNode choice(int depth) {
    if (depth > kMaxDepth) fail("groups nested too deeply", GrammarErrorKind::limit);
    std::vector<EbnfNode> ways;
    const int line = line_;
    do {
      ways.push_back(sequence(depth));
    } while (take("|"));
    return joined(Kind::choice, std::move(ways), line);
  }

  EbnfNode sequence(int depth) {
    EbnfNode node = node_of(Kind::sequence, "", line_);
    for (skip_within(depth); !at_end_of_sequence(); skip_within(depth)) {
      if (take("->")) {  // an alias
        skip_blanks();
        name();
        skip_within(depth);
        break;
      }
      node.parts.push_back(quantified(atom(depth)));
    }
    if (node.parts.size() == 1) return std::move(node.parts[0]);
    return node;
  }
  bool at_end_of_sequence() const {
    return done() || std::string_view("\n|)]").find(peek()) != std::string_view::npos;
  }

  EbnfNode quantified(EbnfNode inner) {
    for (;;) {
      if (take("+")) {
        inner = repeated(std::move(inner), 1, kUnbounded);
      } else if (take("*")) {
        inner = repeated(std::move(inner), 0, kUnbounded);
      } else if (take("?")) {
        inner = repeated(std::move(inner), 0, 1);
      } else if (const std::size_t here = at_; skip_blanks(), take("~")) {
        skip_blanks();
        const std::uint32_t min = number();
        skip_blanks();
        std::uint32_t max = min;
        if (take("..")) {
          skip_blanks();
          max = number();
        }
        if (max < min) fail("a repetition with its bounds exchanged");
        inner = repeated(std::move(inner), min, max);
      } else {
        at_ = here;
        return inner;
      }
    }
  }

  EbnfNode atom(int depth) {
    if (take("(")) return group(")", depth);
    if (take("[")) return repeated(group("]", depth), 0, 1);
    if (take("\"")) return text_or_range();
    if (take("/")) return regex();
    EbnfNode node = node_of(Kind::name, name(), line_);
    if (node.text.empty()) fail(fmt::format("unexpected \"{}\"", peek()));
    if (peek() == '{') unsupported("templates are");
    return node;
  }
  EbnfNode group(const char* end, int depth) {
    EbnfNode inner = choice(depth + 1);
    skip_within(1);
    if (!take(end)) fail("a group without an end");
    return inner;
  }

  EbnfNode text_or_range() {
    const std::string first = string();
    const bool ignores_case = take("i");
    if (text_.substr(at_, 2) == "..") {
      at_ += 2;
      if (!take("\"")) fail("a range without an end");
      const std::string last = string();
      std::size_t from = 0, to = 0;
      EbnfNode node = node_of(Kind::chars, "", line_);
      if (first.empty() || last.empty()) fail("a range is of two characters");
      const char32_t low = next_char(first, from), high = next_char(last, to);
      if (from != first.size() || to != last.size()) fail("a range is of two characters");
      if (high < low) fail("a range that ends before it begins");
      node.chars.add(low, high);
      return node;
    }
    if (ignores_case) return node_of(Kind::regex, "(?i:" + escaped_for_regex(first) + ")", line_);
    return node_of(Kind::text, first, line_);
  }

  // Behind its first quotation mark. As Python reads it, for the escapes that there are in
  // grammars.
  std::string string() {
    std::string out;
    while (!take("\"")) {
      if (done() || peek() == '\n') fail("a text without an end");
      const char c = text_[at_++];
      if (c != '\\') {
        out += c;
        continue;
      }
      if (done()) fail("a text without an end");
      const char letter = text_[at_++];
      constexpr std::string_view kLetters = "nrtf\"\\'/", kMeant = "\n\r\t\f\"\\'/";
      const auto known = kLetters.find(letter);
      if (known == std::string_view::npos) unsupported(fmt::format("the escape \\{} is", letter));
      out += kMeant[known];
    }
    return out;
  }

  EbnfNode regex() {
    std::string pattern;
    while (!take("/")) {
      if (done() || peek() == '\n') fail("a regular expression without an end");
      if (take("\\/")) {
        pattern += '/';
      } else if (peek() == '\\' && at_ + 1 < text_.size()) {
        pattern += text_.substr(at_, 2);
        at_ += 2;
      } else {
        pattern += text_[at_++];
      }
    }
    std::string flags;
    for (; std::string_view("imslux").find(peek()) != std::string_view::npos && !done(); ++at_) {
      if (peek() == 'i' || peek() == 's') flags += peek();
      if (peek() == 'm' || peek() == 'x' || peek() == 'l')
        unsupported(fmt::format("the flag {} is", peek()));
    }
    if (!flags.empty()) pattern = "(?" + flags + ":" + pattern + ")";
    return node_of(Kind::regex, std::move(pattern), line_);
  }

  // Behind every terminal of a rule.
  void insert_ignored(EbnfNode& node) {
    for (EbnfNode& part : node.parts) insert_ignored(part);
    const bool is_token = node.kind == Kind::text || node.kind == Kind::chars ||
                          node.kind == Kind::regex ||
                          (node.kind == Kind::name && is_terminal(node.text));
    if (!is_token) return;
    EbnfNode both = node_of(Kind::sequence, "", node.line);
    both.parts.push_back(std::move(node));
    both.parts.push_back(node_of(Kind::name, kIgnored, both.line));
    node = std::move(both);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<EbnfRule> rules_;
  std::vector<EbnfNode> ignored_;
};

}  // namespace

bool looks_like_lark(std::string_view text) {
  if (text.find("::=") != std::string_view::npos) return false;
  for (std::size_t at = 0; at < text.size();) {
    std::string_view line = text.substr(at, text.find('\n', at) - at);
    at += line.size() + 1;
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    if (line.starts_with("%")) return true;
    line.remove_prefix(std::min(line.find_first_not_of("?!"), line.size()));
    const auto end = std::ranges::find_if_not(line, is_name_char);
    if (end == line.begin()) continue;
    line.remove_prefix(static_cast<std::size_t>(end - line.begin()));
    line.remove_prefix(std::min(line.find_first_not_of(".-0123456789 \t"), line.size()));
    if (line.starts_with(":") && !line.starts_with(":=")) return true;
  }
  return false;
}

std::vector<EbnfRule> parse_lark(std::string_view text) { return LarkParser(text).parse(); }

}  // namespace quire::structured
