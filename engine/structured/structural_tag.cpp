#include "engine/structured/structural_tag.h"

#include <algorithm>
#include <string>

#include "engine/structured/regex/pattern.h"
#include "engine/structured/schema/schema_compiler.h"

namespace quire::structured {
namespace {

namespace json = boost::json;

class TagCompiler {
 public:
  TagCompiler(Rules& rules, JsonStyle& style, Meter& meter, const GrammarLimits& limits)
      : rules_(rules), store_(rules.store()), style_(style), meter_(meter), limits_(limits) {
    text_ = store_.repeat(chars_regex(store_, CharSet::all(), Spelling::plain), 0);
    everything_ = store_.complement(kNothing);
  }

  ExprId document(const json::value& value) {
    if (!value.is_object()) fault("a structural tag must be an object", "");
    const json::object& object = value.get_object();
    if (const auto* format = object.if_contains("format")) return this->format(*format, "/format", {});
    const auto triggers = strings(object, "triggers", "");
    const json::array& structures = list(object, "structures", "");
    std::vector<Tag> tags;
    for (std::size_t i = 0; i < structures.size(); ++i) {
      const std::string at = "/structures/" + std::to_string(i);
      if (!structures[i].is_object()) fault("must be an object", at);
      const json::object& one = structures[i].get_object();
      const ExprId content = schema(member(one, "schema", at), at + "/schema");
      tags.push_back({text(one, "begin", at), content, text(one, "end", at)});
    }
    return triggered(triggers, tags, false, false, "");
  }

 private:
  struct Tag {
    std::string begin;
    ExprId content;
    std::string end;
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

  ExprId schema(const json::value& value, const std::string& at) {
    try {
      return schema_expression(rules_, style_, value, meter_, limits_);
    } catch (const GrammarFailure& failure) {
      throw GrammarFailure(failure.kind(), failure.what(), at + failure.pointer());
    }
  }

  RegexId any_of_literals(const std::vector<std::string>& texts) {
    return store_.literals(std::vector<std::string>(texts));
  }
  // Text in which none of them occurs.
  RegexId without(const std::vector<std::string>& texts) {
    if (texts.empty()) return text_;
    const RegexId found = store_.concat({everything_, any_of_literals(texts), everything_});
    return store_.all_of({text_, store_.complement(found)});
  }
  // Text up to and with `end`, none of `stops` before it.
  RegexId until(const std::string& end, const std::vector<std::string>& stops) {
    const RegexId one = store_.bytes(ByteSet::range(0, 255));
    const RegexId early = store_.concat({everything_, any_of_literals(stops), one, everything_});
    return store_.all_of({store_.concat(text_, store_.literal(end)), store_.complement(early)});
  }

  ExprId triggered(const std::vector<std::string>& triggers, const std::vector<Tag>& tags,
                   bool at_least_one, bool only_first, const std::string& at) {
    std::vector<ExprId> marked;
    std::vector<bool> used(tags.size());
    for (const std::string& trigger : triggers) {
      std::vector<ExprId> bodies;
      for (std::size_t i = 0; i < tags.size(); ++i) {
        if (tags[i].begin.rfind(trigger, 0) != 0) continue;
        used[i] = true;
        bodies.push_back(rules_.sequence(
            {rules_.lexeme(store_.literal(tags[i].begin.substr(trigger.size()))), tags[i].content,
             rules_.lexeme(store_.literal(tags[i].end))}));
      }
      if (bodies.empty()) fault("no tag begins with the trigger \"" + trigger + '"', at + "/triggers");
      marked.push_back(rules_.sequence(
          {rules_.solid(until(trigger, triggers)), rules_.choice(bodies)}));
    }
    if (std::find(used.begin(), used.end(), false) != used.end()) {
      fault("a tag begins with none of the triggers", at + "/triggers");
    }
    const RuleId one = rules_.add_rule();
    rules_.define(one, rules_.choice(marked));
    const ExprId tag = rules_.call(one);
    const ExprId rest = rules_.solid(without(triggers));
    if (only_first) {
      return at_least_one ? tag : rules_.choice({rest, tag});
    }
    const ExprId many = rules_.repeat(tag, at_least_one ? 1 : 0, kUnbounded);
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
    return rules_.sequence({rules_.lexeme(store_.literal(tag.begin)), tag.content,
                            rules_.lexeme(store_.literal(tag.end))});
  }

  // `end`: what follows, which free text must not run over.
  ExprId format(const json::value& value, const std::string& at, const std::string& end) {
    if (!value.is_object()) fault("a format must be an object", at);
    const json::object& object = value.get_object();
    const std::string type = text(object, "type", at);
    if (type == "const_string") return rules_.lexeme(store_.literal(text(object, "value", at)));
    if (type == "any_text") {
      return rules_.solid(end.empty() ? text_ : without({end}));
    }
    if (type == "json_schema") return schema(member(object, "json_schema", at), at + "/json_schema");
    if (type == "regex") {
      return rules_.lexeme(parse_pattern(store_, text(object, "pattern", at), PatternUse::whole,
                                         Spelling::plain));
    }
    if (type == "sequence" || type == "or") {
      const json::array& items = list(object, "elements", at);
      std::vector<ExprId> parts;
      for (std::size_t i = 0; i < items.size(); ++i) {
        const bool last = type == "or" || i + 1 == items.size();
        parts.push_back(format(items[i], at + "/elements/" + std::to_string(i), last ? end : ""));
      }
      return type == "or" ? rules_.choice(parts) : rules_.sequence(parts);
    }
    if (type == "tag") return whole(tag(value, at));
    if (type == "triggered_tags") {
      return triggered(strings(object, "triggers", at), tags(object, at),
                       flag(object, "at_least_one"), flag(object, "stop_after_first"), at);
    }
    if (type == "tags_with_separator") {
      std::vector<ExprId> parts;
      for (const Tag& one : tags(object, at)) parts.push_back(whole(one));
      const RuleId rule = rules_.add_rule();
      rules_.define(rule, rules_.choice(parts));
      const ExprId one = rules_.call(rule);
      const ExprId separator = rules_.lexeme(store_.literal(text(object, "separator", at)));
      const std::uint32_t most = flag(object, "stop_after_first") ? 0 : kUnbounded;
      const ExprId some =
          rules_.sequence({one, rules_.repeat(rules_.sequence({separator, one}), 0, most)});
      return flag(object, "at_least_one") ? some : rules_.choice({rules_.empty(), some});
    }
    fault("no format of type \"" + type + '"', at + "/type", GrammarErrorKind::unsupported);
  }

  Rules& rules_;
  RegexStore& store_;
  JsonStyle& style_;
  Meter& meter_;
  const GrammarLimits& limits_;
  RegexId text_, everything_;
};

}  // namespace

ExprId structural_tag_expression(Rules& rules, JsonStyle& style, const json::value& tag,
                                 Meter& meter, const GrammarLimits& limits) {
  return TagCompiler(rules, style, meter, limits).document(tag);
}

}  // namespace quire::structured
