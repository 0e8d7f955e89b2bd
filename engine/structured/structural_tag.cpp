#include "engine/structured/structural_tag.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "engine/structured/grammar/ebnf.h"
#include "engine/structured/grammar_source.h"
#include "engine/structured/regex/pattern.h"
#include "engine/structured/schema/formats.h"
#include "engine/structured/schema/json_style.h"
#include "engine/structured/schema/schema_compiler.h"
#include "engine/structured/tag_text.h"

namespace quire::structured {
namespace {

namespace json = boost::json;

// What a format of a type may hold beside "type" and "place".
struct Known {
  std::string_view type;
  std::initializer_list<std::string_view> members;
};
constexpr std::string_view kText = "text";

class TagCompiler {
 public:
  TagCompiler(Rules& rules, JsonStyle& style, Meter& meter, const GrammarContext& context)
      : rules_(rules),
        style_(style),
        meter_(meter),
        limits_(context.limits),
        text_(rules.store(), context.vocabulary == nullptr
                                 ? std::span<const std::string>()
                                 : context.vocabulary->special_texts()) {}

  ExprId document(const json::value& value, const std::string& at) {
    if (!value.is_object()) fault("a structural tag must be an object", at);
    const json::object& object = value.get_object();
    if (!at.empty()) check_document(object, at);
    const auto* format = object.if_contains("format");
    const auto* answer = object.if_contains("answer");
    if (format != nullptr && answer != nullptr) {  // one for each document
      const auto outer = std::pair(std::exchange(answer_, answer), std::exchange(answer_rule_, {}));
      const ExprId whole = this->format(*format, at + "/format", {});
      std::tie(answer_, answer_rule_) = outer;
      return whole;
    }
    if (format != nullptr) return this->format(*format, at + "/format", {});
    const auto triggers = strings(object, "triggers", at);
    const json::array& structures = list(object, "structures", at);
    std::vector<Tag> tags;
    for (std::size_t i = 0; i < structures.size(); ++i) {
      const std::string one_at = at + "/structures/" + std::to_string(i);
      if (!structures[i].is_object()) fault("must be an object", one_at);
      const json::object& one = structures[i].get_object();
      const ExprId content = schema(member(one, "schema", one_at), one_at + "/schema");
      tags.push_back({text(one, "begin", one_at), content, text(one, "end", one_at)});
    }
    return triggered({triggers, tags, false, false, Over::characters}, at);
  }

 private:
  using Over = TagText::Over;
  struct Tag {
    std::string begin;
    ExprId content;
    std::string end;
  };
  struct Triggered {
    std::vector<std::string> triggers;
    std::vector<Tag> tags;
    bool at_least_one;
    bool only_first;
    Over over;
  };

  [[noreturn]] static void fault(const std::string& what, const std::string& at,
                                 GrammarErrorKind kind = GrammarErrorKind::syntax) {
    throw GrammarFailure(kind, "structural tag: " + what, at);
  }
  static const json::value& member(const json::object& object, const char* key,
                                   const std::string& at) {
    const auto* value = object.if_contains(key);
    if (value == nullptr) fault(std::string("\"") + key + "\" is missing", at);
    return *value;
  }
  static const json::array& list(const json::object& object, const char* key,
                                 const std::string& at) {
    const json::value& value = member(object, key, at);
    if (!value.is_array() || value.get_array().empty()) {
      fault(std::string("\"") + key + "\" must be a list that is not empty", at + '/' + key);
    }
    return value.get_array();
  }
  static std::string text(const json::object& object, const char* key, const std::string& at) {
    const json::value& value = member(object, key, at);
    if (!value.is_string()) fault(std::string("\"") + key + "\" must be a string", at + '/' + key);
    return std::string(value.get_string());
  }
  static std::vector<std::string> strings(const json::object& object, const char* key,
                                          const std::string& at) {
    std::vector<std::string> result;
    for (const json::value& item : list(object, key, at)) {
      if (!item.is_string() || item.get_string().empty()) {
        fault(std::string("\"") + key + "\" must be strings that are not empty", at + '/' + key);
      }
      result.emplace_back(item.get_string());
    }
    return result;
  }
  static bool flag(const json::object& object, const char* key) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_bool() && value->get_bool();
  }

  // What `make` refuses is refused with its place in the whole.
  template <class Make>
  static ExprId placed(const std::string& at, Make make) {
    try {
      return make();
    } catch (const GrammarFailure& failure) {
      throw GrammarFailure(failure.kind(), failure.what(), at + failure.pointer());
    }
  }
  ExprId schema(const json::value& value, const std::string& at) {
    return placed(at, [&] { return schema_expression(rules_, style_, value, meter_, limits_); });
  }

  Over over(const json::object& object, const std::string& at) {
    const auto* value = object.if_contains(kText);
    if (value == nullptr || *value == "characters") return Over::characters;
    if (*value == "bytes") return Over::bytes;
    if (*value == "tokens") return Over::tokens;
    fault("\"text\" must be characters, bytes or tokens", at + "/text");
  }

  ExprId triggered(const Triggered& wanted, const std::string& at) {
    std::vector<ExprId> marked;
    std::vector<bool> used(wanted.tags.size());
    for (const std::string& trigger : wanted.triggers) {
      std::vector<ExprId> bodies;
      for (std::size_t i = 0; i < wanted.tags.size(); ++i) {
        const Tag& tag = wanted.tags[i];
        if (!tag.begin.starts_with(trigger)) continue;
        used[i] = true;
        bodies.push_back(whole({tag.begin.substr(trigger.size()), tag.content, tag.end}));
      }
      if (bodies.empty()) fault("no tag begins with the trigger \"" + trigger + '"', at + "/triggers");
      marked.push_back(
          rules_.sequence({rules_.solid(text_.until(wanted.over, trigger, wanted.triggers)),
                           rules_.choice(bodies)}));
    }
    if (std::ranges::find(used, false) != used.end()) {
      fault("a tag begins with none of the triggers", at + "/triggers");
    }
    const RuleId one = rules_.add_rule();
    rules_.define(one, rules_.choice(marked));
    const ExprId tag = rules_.call(one);
    const ExprId rest = rules_.solid(text_.without(wanted.over, wanted.triggers));
    if (wanted.only_first) return wanted.at_least_one ? tag : rules_.choice({rest, tag});
    const ExprId many = rules_.repeat(tag, wanted.at_least_one ? 1 : 0, kUnbounded);
    return rules_.sequence({many, rest});
  }

  Tag tag(const json::value& value, const std::string& at) {
    if (!value.is_object()) fault("a tag must be an object", at);
    const json::object& object = value.get_object();
    const std::string end = text(object, "end", at);
    const ExprId content = format(member(object, "content", at), at + "/content", end);
    return {text(object, "begin", at), content, end};
  }
  std::vector<Tag> tags(const json::object& object, const std::string& at) {
    std::vector<Tag> result;
    const json::array& items = list(object, "tags", at);
    for (std::size_t i = 0; i < items.size(); ++i) {
      result.push_back(tag(items[i], at + "/tags/" + std::to_string(i)));
    }
    return result;
  }
  ExprId whole(const Tag& tag) {
    return rules_.sequence({rules_.lexeme(text_.mark(tag.begin)), tag.content,
                            rules_.lexeme(text_.mark(tag.end))});
  }

  // Of a client's: the outermost one is ours.
  static void check_document(const json::object& object, const std::string& at) {
    constexpr std::string_view kMembers[] = {"type", "format", "answer", "structures", "triggers"};
    for (const auto& [key, value] : object) {
      if (std::ranges::find(kMembers, std::string_view(key)) != std::end(kMembers)) continue;
      fault("\"" + std::string(key) + "\" is not known here", at + '/' + std::string(key),
            GrammarErrorKind::unsupported);
    }
  }

  static void check_members(const json::object& object, std::string_view type,
                            const std::string& at) {
    static const std::initializer_list<Known> kKnown = {
        {"const_string", {"value"}},
        {"answer", {}},
        {"any_text", {"text", "not_beginning", "without", "string"}},
        {"json_schema", {"json_schema"}},
        {"regex", {"pattern"}},
        {"grammar", {"grammar"}},
        {"choice", {"choice"}},
        {"structural_tag", {"structural_tag"}},
        {"sequence", {"elements"}},
        {"or", {"elements"}},
        {"tag", {"begin", "content", "end"}},
        {"triggered_tags", {"triggers", "tags", "at_least_one", "stop_after_first", "text"}},
        {"tags_with_separator", {"tags", "separator", "at_least_one", "stop_after_first"}}};
    const auto known = std::ranges::find(kKnown, type, &Known::type);
    if (known == kKnown.end()) {
      fault("no format of type \"" + std::string(type) + '"', at + "/type",
            GrammarErrorKind::unsupported);
    }
    for (const auto& [key, value] : object) {
      if (key == "type" || key == "place") continue;
      if (std::ranges::find(known->members, std::string_view(key)) != known->members.end()) continue;
      fault("\"" + std::string(key) + "\" is not known here", at + '/' + std::string(key),
            GrammarErrorKind::unsupported);
    }
  }

  // `end`: what follows, which free text must not run over.
  ExprId format(const json::value& value, std::string at, const std::string& end) {
    if (!value.is_object()) fault("a format must be an object", at);
    const json::object& object = value.get_object();
    const std::string type = text(object, "type", at);
    check_members(object, type, at);
    if (object.contains("place")) at = text(object, "place", at);
    const bool is_placed = object.contains("place");
    const auto inside = [&](const char* key) { return is_placed ? at : at + '/' + key; };
    if (type == "const_string") return rules_.lexeme(text_.mark(text(object, "value", at)));
    if (type == "any_text") return any_text(object, at, end);
    if (type == "answer" && answer_ != nullptr) return answer();
    if (type == "json_schema") {
      return schema(member(object, "json_schema", at), inside("json_schema"));
    }
    if (type == "structural_tag") {
      return document(member(object, "structural_tag", at), inside("structural_tag"));
    }
    if (type == "choice") {
      return placed(inside("choice"),
                    [&] { return choice_expression(rules_, member(object, "choice", at)); });
    }
    if (type == "regex") {
      return placed(inside("pattern"),
                    [&] { return regex_expression(rules_, text(object, "pattern", at)); });
    }
    if (type == "grammar") {
      return placed(inside("grammar"), [&] {
        return rules_.call(parse_ebnf(rules_, text(object, "grammar", at)));
      });
    }
    if (type == "sequence" || type == "or") return elements(object, type, at, end);
    if (type == "tag") return whole(tag(value, at));
    if (type == "triggered_tags") {
      return triggered({strings(object, "triggers", at), tags(object, at),
                        flag(object, "at_least_one"), flag(object, "stop_after_first"),
                        over(object, at)},
                       at);
    }
    if (type == "tags_with_separator") return separated(object, at);
    fault("\"answer\" stands in the document's format only", at);
  }

  // Where it comes up a second time it is the same rule.
  ExprId answer() {
    if (!answer_rule_) {
      answer_rule_ = rules_.add_rule();
      const json::value& value = *std::exchange(answer_, nullptr);
      rules_.define(*answer_rule_, format(value, "/answer", {}));
      answer_ = &value;
    }
    return rules_.call(*answer_rule_);
  }

  ExprId any_text(const json::object& object, const std::string& at, const std::string& end) {
    const Over kind = over(object, at);
    if (object.contains("not_beginning")) {
      return rules_.solid(text_.not_beginning(kind, strings(object, "not_beginning", at)));
    }
    const bool excludes = object.contains("without");
    const RegexId text = excludes ? text_.without(kind, strings(object, "without", at))
                         : end.empty() ? text_.any(kind)
                                       : text_.without(kind, {end});
    const auto* schema = object.if_contains("string");
    if (schema == nullptr || !schema->is_object()) return rules_.solid(text);
    return placed(at, [&] { return bare_string(schema->get_object(), text); });
  }

  // What a schema says of a string, of one that stands without quotes.
  ExprId bare_string(const json::object& schema, RegexId text) {
    RegexStore& store = rules_.store();
    std::vector<RegexId> parts = {text};
    const auto length = [&](const char* key, std::uint32_t otherwise) {
      const auto* value = schema.if_contains(key);
      if (value == nullptr) return otherwise;
      boost::system::error_code error;
      const auto number = value->to_number<std::uint32_t>(error);
      if (error) fault("must be a whole number", std::string("/") + key);
      return number;
    };
    const std::uint32_t least = length("minLength", 0), most = length("maxLength", kUnbounded);
    const RegexId one = chars_regex(store, CharSet::all(), Spelling::plain);
    if (least > 0 || most != kUnbounded) {
      parts.push_back(least > most ? kNothing : store.repeat(one, least, most));
    }
    if (const auto* pattern = schema.if_contains("pattern")) {
      if (!pattern->is_string()) fault("must be a string", "/pattern");
      try {
        parts.push_back(parse_pattern(store, std::string(pattern->get_string()),
                                      PatternUse::search, Spelling::plain));
      } catch (const GrammarFailure& failure) {
        throw GrammarFailure(failure.kind(), failure.what(), "/pattern");
      }
    }
    if (const auto* format = schema.if_contains("format")) {
      const auto known = format->is_string()
                             ? format_regex(store, std::string(format->get_string()), Spelling::plain)
                             : std::nullopt;
      if (!known) fault("is not known", "/format", GrammarErrorKind::unsupported);
      parts.push_back(*known);
    }
    const RegexId all = store.all_of(std::move(parts));
    if (!store.alive(all)) fault("no text fits", "", GrammarErrorKind::unsatisfiable);
    return rules_.solid(all);
  }

  ExprId elements(const json::object& object, const std::string& type, const std::string& at,
                  const std::string& end) {
    const json::array& items = list(object, "elements", at);
    std::vector<ExprId> parts;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const bool last = type == "or" || i + 1 == items.size();
      parts.push_back(format(items[i], at + "/elements/" + std::to_string(i), last ? end : ""));
    }
    return type == "or" ? rules_.choice(parts) : rules_.sequence(parts);
  }

  ExprId separated(const json::object& object, const std::string& at) {
    std::vector<ExprId> parts;
    for (const Tag& one : tags(object, at)) parts.push_back(whole(one));
    const RuleId rule = rules_.add_rule();
    rules_.define(rule, rules_.choice(parts));
    const ExprId one = rules_.call(rule);
    const ExprId separator = rules_.lexeme(text_.mark(text(object, "separator", at)));
    const std::uint32_t most = flag(object, "stop_after_first") ? 0 : kUnbounded;
    const ExprId some =
        rules_.sequence({one, rules_.repeat(rules_.sequence({separator, one}), 0, most)});
    return flag(object, "at_least_one") ? some : rules_.choice({rules_.empty(), some});
  }

  Rules& rules_;
  JsonStyle& style_;
  Meter& meter_;
  const GrammarLimits& limits_;
  TagText text_;
  const json::value* answer_ = nullptr;  // the document's; in itself there is none
  std::optional<RuleId> answer_rule_;
};

std::optional<std::string> text_member(const json::value& tag, const char* key) {
  const auto* given = tag.is_object() ? tag.get_object().if_contains(key) : nullptr;
  if (given == nullptr || !given->is_string()) return std::nullopt;
  return std::string(given->get_string());
}

JsonStyle style_of(Rules& rules, const json::value& tag) {
  const auto* any = tag.is_object() ? tag.get_object().if_contains("any_whitespace") : nullptr;
  try {
    return {rules, any == nullptr || *any != false, text_member(tag, "whitespace_pattern")};
  } catch (const GrammarFailure& failure) {
    throw GrammarFailure(failure.kind(), failure.what(),
                         text_member(tag, "whitespace_place").value_or("/whitespace_pattern"));
  }
}

}  // namespace

ExprId structural_tag_expression(Rules& rules, const json::value& tag, Meter& meter,
                                 const GrammarContext& context) {
  JsonStyle style = style_of(rules, tag);
  return TagCompiler(rules, style, meter, context).document(tag, "");
}

}  // namespace quire::structured
