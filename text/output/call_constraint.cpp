#include "text/output/call_constraint.h"

#include "jinja/values/dict.h"
#include "jinja/values/json.h"
#include "jinja/values/value.h"
#include "text/output/json_scanner.h"
#include "text/output/marker_matcher.h"

namespace quire {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;
using Kind = CallPart::Kind;

Value member(const Value& of, std::string_view name) {
  const Value* found = of.is(Value::Kind::dict) ? of.dict().find(name) : nullptr;
  return found == nullptr ? Value() : *found;
}

// The formats that structural tags are made of.
Value node(const char* type, std::initializer_list<std::pair<const char*, Value>> members) {
  Dict dict;
  dict.set("type", Value(type));
  for (const auto& [name, value] : members) dict.set(name, value);
  return Value(std::move(dict));
}
Value text(std::string value) { return node("const_string", {{"value", Value(std::move(value))}}); }
Value schema_node(const Value& schema) { return node("json_schema", {{"json_schema", schema}}); }
Value sequence(List parts) { return node("sequence", {{"elements", Value(std::move(parts))}}); }
Value either(List parts) {
  if (parts.size() == 1) return parts.front();
  return node("or", {{"elements", Value(std::move(parts))}});
}
Value tag(std::string begin, const Value& content, std::string end) {
  return node(
      "tag",
      {{"begin", Value(std::move(begin))}, {"content", content}, {"end", Value(std::move(end))}});
}
Value any_text() { return node("any_text", {}); }
Value space() { return node("regex", {{"pattern", Value("\\s*")}}); }

bool is_type(const Value& schema, std::string_view name) {
  const Value type = member(schema, "type");
  return type.is_string() && type.string() == name;
}

std::string quoted(std::string_view name) {
  std::string json;
  append_json_string(json, name);
  return json;
}

class ConstraintBuilder {
 public:
  ConstraintBuilder(const CallFormat& format, const CallConstraint& wanted)
      : format_(format), wanted_(wanted) {}

  // A row of calls of these functions, without the marker that opens it.
  Value row(const List& functions) const {
    List tags;
    for (const Value& function : functions) tags.push_back(call(function));
    const bool alone = format_.row_per_call || !wanted_.parallel;
    Value calls = alone ? either(std::move(tags))
                        : node("tags_with_separator", {{"tags", Value(std::move(tags))},
                                                       {"separator", Value(format_.separator)},
                                                       {"at_least_one", Value(true)}});
    const std::string end = format_.end.empty() ? "" : format_.end.front();
    return tag(format_.open, calls, format_.close + end);
  }

  std::string begin() const { return format_.begin.empty() ? "" : format_.begin.front(); }

  // Everything that has to come: one row, or one for each call.
  Value required(const List& functions) const {
    const Value one = tag(begin(), row(functions), "");
    if (!format_.row_per_call || !wanted_.parallel) return one;
    return node(
        "tags_with_separator",
        {{"tags", Value(List{one})}, {"separator", Value("\n")}, {"at_least_one", Value(true)}});
  }

  // Text with rows in it, or where nothing marks them one that begins the answer.
  Value automatic(const List& functions) const {
    const Value one = tag(begin(), row(functions), "");
    if (format_.starts_answer) {
      return either({one, node("regex", {{"pattern", Value("(?:[^\\s\\[{][\\s\\S]*)?")}})});
    }
    return node("triggered_tags", {{"triggers", Value(List{Value(without_space(begin()))})},
                                   {"tags", Value(List{one})}});
  }

 private:
  Value schema_of(const Value& function) const {
    const Value strict = member(function, "strict");
    const bool held = wanted_.demand == CallDemand::required ||
                      (strict.is(Value::Kind::boolean) && strict.boolean());
    const Value schema = member(function, "parameters");
    if (held && schema.is(Value::Kind::dict)) return schema;
    Dict any;
    any.set("type", Value("object"));
    return Value(std::move(any));
  }

  Value call(const Value& function) const {
    const std::string name = member(function, "name").string();
    const Value schema = schema_of(function);
    std::string before;
    Value arguments;
    std::string after;
    const auto& parts = format_.call;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::string& out = arguments.is_none() ? before : after;
      switch (parts[i].kind) {
        case Kind::literal:
          if (parts[i].optional > 1) {
            i += std::size_t(parts[i].optional) - 1;
          } else {
            out += parts[i].text;
          }
          break;
        case Kind::name:
          out += format_.name_prefix + name + (format_.name_index ? ":0" : "");
          break;
        case Kind::note:
          out += "function";
          break;
        case Kind::id:
          break;
        case Kind::object:
          before += "{" + quoted(format_.keys.name) + ": " + quoted(name) + ", " +
                    quoted(format_.keys.arguments.front()) + ": ";
          arguments = schema_node(schema);
          after = "}";
          break;
        case Kind::json:
          arguments = schema_node(schema);
          break;
        case Kind::parameters:
          arguments = parameters(schema);
          break;
        case Kind::keywords:
          arguments = keywords(schema);
          after = ")";
          break;
      }
    }
    return tag(std::move(before), arguments, std::move(after));
  }

  // The part of the schema that a parameter's own names may refer to.
  static Value with_definitions(const Value& property, const Value& schema) {
    const Value definitions = member(schema, "$defs");
    if (definitions.is_none() || !property.is(Value::Kind::dict)) return property;
    Dict whole = property.dict();
    whole.set("$defs", definitions);
    return Value(std::move(whole));
  }

  static bool is_required(const Value& schema, const Value& key) {
    const Value required = member(schema, "required");
    if (!required.is(Value::Kind::list)) return false;
    for (const Value& one : required.list()) {
      if (one.is_string() && one.string() == key.string()) return true;
    }
    return false;
  }

  // Bare text, or JSON where the schema says so.
  static Value bare_value(const Value& property, const Value& schema) {
    const Value values = member(property, "enum");
    List texts;
    if (values.is(Value::Kind::list)) {
      for (const Value& one : values.list()) {
        texts.push_back(text(one.is_string() ? one.string() : jinja::dump_json(one, {})));
      }
    }
    if (!texts.empty()) return either(std::move(texts));
    const bool is_text = member(property, "type").is_none() || is_type(property, "string");
    return is_text ? any_text() : schema_node(with_definitions(property, schema));
  }

  Value parameter(const std::string& name, const Value& property, const Value& schema) const {
    const ParameterFormat& format = format_.parameter;
    const std::string line = format.own_lines ? "\n" : "";
    const Value value = bare_value(property, schema);
    std::string begin = format.open + name + format.key_end;
    if (!format.attribute_end.empty()) {
      const bool is_text = member(property, "type").is_none() || is_type(property, "string");
      begin += (is_text ? "true" : "false") + format.attribute_end;
    }
    return tag(begin + format.value_begin + line, value, line + format.close);
  }

  Value parameters(const Value& schema) const {
    List parts;
    const Value properties = member(schema, "properties");
    if (properties.is(Value::Kind::dict)) {
      for (const auto& [key, property] : properties.dict()) {
        Value one = parameter(key.string(), property, schema);
        parts.push_back(is_required(schema, key) ? one : either({one, text("")}));
      }
    }
    return parts.empty() ? text("") : sequence(std::move(parts));
  }

  static Value keyword(const std::string& before, const std::string& key, const Value& property,
                       const Value& schema) {
    Value value = schema_node(with_definitions(property, schema));
    if (is_type(property, "boolean")) value = either({text("True"), text("False")});
    return sequence({text(before + key + "="), value});
  }

  // The required ones, then the others; where none is required any of them may be the first.
  static Value keywords(const Value& schema) {
    const Value properties = member(schema, "properties");
    std::vector<std::pair<std::string, Value>> needed, others;
    if (properties.is(Value::Kind::dict)) {
      for (const auto& [key, property] : properties.dict()) {
        (is_required(schema, key) ? needed : others).emplace_back(key.string(), property);
      }
    }
    List parts;
    for (const auto& [key, property] : needed) {
      parts.push_back(keyword(parts.empty() ? "" : ", ", key, property, schema));
    }
    const auto rest = [&](std::size_t from, List& into) {
      for (std::size_t i = from; i < others.size(); ++i) {
        into.push_back(
            either({keyword(", ", others[i].first, others[i].second, schema), text("")}));
      }
    };
    if (!needed.empty()) {
      rest(0, parts);
      return sequence(std::move(parts));
    }
    List firsts = {text("")};
    for (std::size_t i = 0; i < others.size(); ++i) {
      List from = {keyword("", others[i].first, others[i].second, schema)};
      rest(i + 1, from);
      firsts.push_back(sequence(std::move(from)));
    }
    return either(std::move(firsts));
  }

  const CallFormat& format_;
  const CallConstraint& wanted_;
};

// Harmony opens a call with a message's header.
CallFormat with_header(CallFormat format) {
  format.call.insert(format.call.begin(), {{Kind::literal, "<|channel|>commentary to="},
                                           {Kind::name},
                                           {Kind::literal, " <|constrain|>json<|message|>"}});
  format.row_per_call = true;
  return format;
}

// The thought that the prompt has opened has to end; one that the model may open comes or not.
Value after_reasoning(const OutputFormat& format, const Value& answer) {
  if (format.dialect->channels) {
    const Value thought =
        tag("<|channel|>analysis<|message|>", any_text(), "<|end|><|start|>assistant");
    return sequence({either({thought, text("")}), answer});
  }
  if (format.reasoning == nullptr) return answer;
  const std::string& close = format.reasoning->close.front();
  if (format.starts_inside) return sequence({tag("", any_text(), close), space(), answer});
  const Value thought = sequence({tag(format.reasoning->open.front(), any_text(), close), space()});
  return sequence({either({thought, text("")}), answer});
}

}  // namespace

std::string call_constraint(const OutputFormat& format, std::string_view tools,
                            const CallConstraint& wanted) {
  List functions;
  bool any_strict = false;
  const Value list = jinja::parse_json(tools);
  for (const Value& tool : list.items()) {
    const Value function = member(tool, "function");
    if (!wanted.only.empty() && member(function, "name").string() != wanted.only) continue;
    const Value strict = member(function, "strict");
    any_strict = any_strict || (strict.is(Value::Kind::boolean) && strict.boolean());
    functions.push_back(function);
  }
  const bool is_required = wanted.demand == CallDemand::required;
  if (functions.empty() || (!is_required && !any_strict)) return {};
  const CallFormat& calls = format.dialect->calls;
  const CallFormat whole = format.dialect->channels ? with_header(calls) : calls;
  const ConstraintBuilder builder(whole, wanted);
  Value answer;
  if (is_required) {
    answer = builder.required(functions);
  } else if (format.dialect->channels) {
    answer = either({builder.required(functions), any_text()});
  } else {
    answer = builder.automatic(functions);
  }
  Dict document;
  document.set("format", after_reasoning(format, answer));
  return jinja::dump_json(Value(std::move(document)), {});
}

}  // namespace quire
