#include "engine/structured/structural_tag.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "engine/structured/bare_string.h"
#include "engine/structured/grammar/ebnf.h"
#include "engine/structured/grammar_source.h"
#include "engine/structured/lenient_schema.h"
#include "engine/structured/schema/json_style.h"
#include "engine/structured/schema/schema_compiler.h"
#include "engine/structured/tag_members.h"
#include "engine/structured/tag_text.h"

namespace quire::structured {
namespace {

namespace json = boost::json;

constexpr std::string_view kText = "text";

class TagCompiler {
 public:
  TagCompiler(Rules& rules, JsonStyle& style, Meter& meter, const GrammarContext& context)
      : rules_(rules),
        style_(style),
        meter_(meter),
        limits_(context.limits),
        text_(rules.store(), context.vocabulary == nullptr ? std::span<const std::string>()
                                                           : context.vocabulary->special_texts()) {}

  ExprId document(const json::value& value, const std::string& at) {
    if (!value.is_object()) fault("a structural tag must be an object", at);
    const json::object& object = value.get_object();
    if (!at.empty()) check_tag_document(object, at);
    if (object.contains("not_strict")) {
      for (std::string& place : strings(object, "not_strict", at))
        lenient_.push_back(std::move(place));
    }
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
      tags.push_back({text(one, "begin", one_at), content, {text(one, "end", one_at)}});
    }
    return triggered({triggers, tags, false, false, Over::characters}, at);
  }

 private:
  using Over = TagText::Over;
  using Texts = std::vector<std::string>;
  struct Tag {
    std::string begin;
    ExprId content;
    Texts ends;  // one of them
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
    tag_fault(what, at, kind);
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
  ExprId schema(const json::value& value, const std::string& at, bool only_objects = false) {
    const auto make = [&](const json::value& one) {
      return schema_expression(rules_, style_, one, meter_, limits_, only_objects);
    };
    const auto around = lenient_place(at);
    return placed(at, [&] {
      if (!around) return make(value);
      const bool is_whole = *around == at;  // all arguments, which are an object
      return lenient_schema(value, is_whole ? json::value{{"type", "object"}} : json::value(true),
                            at, make);
    });
  }
  // Of those that are enforced as far as they can be, the one that this is or lies in.
  std::optional<std::string> lenient_place(const std::string& at) const {
    for (const std::string& place : lenient_) {
      if (at == place || at.starts_with(place + '/')) return place;
    }
    return std::nullopt;
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
        bodies.push_back(whole({tag.begin.substr(trigger.size()), tag.content, tag.ends}));
      }
      if (bodies.empty())
        fault("no tag begins with the trigger \"" + trigger + '"', at + "/triggers");
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
    if (!wanted.at_least_one) {
      if (wanted.only_first) return rules_.choice({rest, tag});
      return rules_.sequence({rules_.repeat(tag, 0, kUnbounded), rest});
    }
    // One that must come comes at once: text before it might never end.
    std::vector<ExprId> bare;
    for (const Tag& each : wanted.tags) bare.push_back(whole(each));
    const ExprId first = rules_.choice(bare);
    if (wanted.only_first) return first;
    return rules_.sequence({first, rules_.repeat(tag, 0, kUnbounded), rest});
  }

  Tag tag(const json::value& value, const std::string& at) {
    if (!value.is_object()) fault("a tag must be an object", at);
    const json::object& object = value.get_object();
    const json::value& end = member(object, "end", at);
    const Texts ends = end.is_array() ? strings(object, "end", at) : Texts{text(object, "end", at)};
    const ExprId content = format(member(object, "content", at), at + "/content", ends);
    return {text(object, "begin", at), content, ends};
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
    return rules_.sequence({rules_.lexeme(text_.mark(tag.begin)), tag.content, one_of(tag.ends)});
  }

  ExprId one_of(const Texts& marks) {
    std::vector<ExprId> parts;
    for (const std::string& mark : marks) parts.push_back(rules_.lexeme(text_.mark(mark)));
    return rules_.choice(parts);
  }

  // `ends`: what follows, which free text must not run over.
  ExprId format(const json::value& value, std::string at, const Texts& ends) {
    if (!value.is_object()) fault("a format must be an object", at);
    const json::object& object = value.get_object();
    const std::string type = text(object, "type", at);
    check_tag_format(object, type, at);
    if (object.contains("place")) at = text(object, "place", at);
    const bool is_placed = object.contains("place");
    const auto inside = [&](const char* key) { return is_placed ? at : at + '/' + key; };
    if (type == "const_string") return rules_.lexeme(text_.mark(text(object, "value", at)));
    if (type == "any_text") return any_text(object, at, ends);
    if (type == "answer" && answer_ != nullptr) return answer();
    if (type == "json_schema") {
      return schema(member(object, "json_schema", at), inside("json_schema"),
                    flag(object, "only_objects"));
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
      return placed(inside("grammar"),
                    [&] { return rules_.call(parse_ebnf(rules_, text(object, "grammar", at))); });
    }
    if (type == "sequence" || type == "or") return elements(object, type, at, ends);
    if (const auto often = how_often(object, type, at)) return repeated(object, *often, at, ends);
    if (type == "tag") return whole(tag(value, at));
    if (type == "triggered_tags") {
      return triggered(
          {strings(object, "triggers", at), tags(object, at), flag(object, "at_least_one"),
           flag(object, "stop_after_first"), over(object, at)},
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

  ExprId any_text(const json::object& object, const std::string& at, const Texts& ends) {
    const Over kind = over(object, at);
    if (object.contains("not_beginning")) {
      return rules_.solid(text_.not_beginning(kind, strings(object, "not_beginning", at)));
    }
    const bool excludes = object.contains("without");
    const RegexId text = excludes       ? text_.without(kind, strings(object, "without", at))
                         : ends.empty() ? text_.any(kind)
                                        : text_.without(kind, ends);
    const auto* schema = object.if_contains("string");
    if (schema == nullptr || !schema->is_object()) return rules_.solid(text);
    const auto make = [&](const json::value& one) {
      return bare_string(rules_, one.get_object(), text);
    };
    return placed(at, [&] {
      return lenient_place(at) ? lenient_schema(*schema, json::object(), at, make) : make(*schema);
    });
  }

  using Often = std::pair<std::uint32_t, std::uint32_t>;
  static std::optional<Often> how_often(const json::object& object, const std::string& type,
                                        const std::string& at) {
    if (type == "optional") return Often{0, 1};
    if (type == "star") return Often{0, kUnbounded};
    if (type == "plus") return Often{1, kUnbounded};
    if (type != "repeat") return std::nullopt;
    const auto count = [&](const char* key) {
      const json::value& value = member(object, key, at);
      constexpr std::int64_t kMost = 100'000;
      if (!value.is_int64() || value.get_int64() < -1 || value.get_int64() > kMost) {
        fault(
            std::string("\"") + key + "\" must be a whole number up to 100000, or -1 for no limit",
            at + '/' + key);
      }
      return static_cast<std::uint32_t>(value.get_int64());
    };
    const Often often{count("min"), count("max")};
    if (often.first > often.second) fault("\"min\" is above \"max\"", at + "/min");
    return often;
  }
  ExprId repeated(const json::object& object, const Often& often, const std::string& at,
                  const Texts& ends) {
    const RuleId one = rules_.add_rule();
    rules_.define(one, format(member(object, "content", at), at + "/content", ends));
    return rules_.repeat(rules_.call(one), often.first, often.second);
  }

  ExprId elements(const json::object& object, const std::string& type, const std::string& at,
                  const Texts& ends) {
    const json::array& items = list(object, "elements", at);
    std::vector<ExprId> parts;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const bool last = type == "or" || i + 1 == items.size();
      parts.push_back(
          format(items[i], at + "/elements/" + std::to_string(i), last ? ends : Texts()));
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
  std::vector<std::string> lenient_;     // places
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
