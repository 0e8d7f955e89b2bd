#include "text/output/call_constraint.h"

#include <algorithm>

#include "jinja/values/json.h"
#include "text/output/json_scanner.h"
#include "text/output/marker_matcher.h"
#include "text/output/python_arguments.h"

namespace quire {

using namespace constraint;
using Kind = CallPart::Kind;

namespace {

std::string quoted(std::string_view name) {
  std::string json;
  append_json_string(json, name);
  return json;
}

// How a parameter's attribute says what its value is.
std::vector<const char*> attribute_words(const ParameterFormat& format, JsonTypes types) {
  const bool is_text = types.string || types.only_string();
  const bool any = types.string && types.number;
  if (!format.attribute_is_type) {
    return any ? std::vector{"true", "false"} : std::vector{is_text ? "true" : "false"};
  }
  if (is_text && !any) return {"string"};
  std::vector<const char*> words;
  if (types.string) words.push_back("string");
  if (types.number) words.push_back("number");
  if (types.boolean) words.push_back("boolean");
  if (types.null) words.push_back("null");
  if (types.object) words.push_back("object");
  if (types.array) words.push_back("array");
  return words;
}

// The parser ends it at the closing mark, whatever stands around that.
Value bare_text(const ParameterFormat& format) {
  List without = {Value(without_space(format.close))};
  return node("any_text", {{"without", Value(std::move(without))}});
}

// As long, and like, as the schema says.
Value bare_string(const ParameterFormat& format, const Value& property, const std::string& place) {
  Dict limits;
  for (const char* name : {"minLength", "maxLength", "pattern", "format"}) {
    if (const Value limit = member(property, name); !limit.is_none()) limits.set(name, limit);
  }
  if (limits.empty()) return bare_text(format);
  Dict whole = bare_text(format).dict();
  whole.set("string", Value(std::move(limits)));
  whole.set("place", Value(place));
  return Value(std::move(whole));
}

// Harmony opens a call with a message's header.
CallFormat with_header(CallFormat format) {
  format.call.insert(format.call.begin(), {{Kind::literal, "<|channel|>commentary to="},
                                           {Kind::name},
                                           {Kind::literal, " <|constrain|>json<|message|>"}});
  format.row_per_call = true;
  return format;
}

// One after the other: neighbouring literals are one.
class Row {
 public:
  void literal(std::string_view more) { text_ += more; }
  void part(Value part) {
    flush();
    parts_.push_back(std::move(part));
  }
  Value take() {
    if (!text_.empty() || parts_.empty()) flush();
    return sequence(std::move(parts_));
  }

 private:
  void flush() {
    if (!text_.empty() || parts_.empty()) parts_.push_back(text(std::exchange(text_, {})));
  }
  std::string text_;
  List parts_;
};

}  // namespace

CallConstraint::CallConstraint(const OutputFormat& format, std::vector<Function> functions,
                               bool parallel)
    : output_(format),
      format_(format.dialect->channels ? with_header(format.dialect->calls)
                                       : format.dialect->calls),
      functions_(std::move(functions)),
      parallel_(parallel) {}

std::string CallConstraint::begin() const {
  return format_.begin.empty() ? "" : format_.begin.front();
}

// Those that open a row in place of its own beginning: a call's first words.
std::vector<std::string> CallConstraint::call_openings() const {
  std::vector<std::string> openings;
  const CallPart& first = format_.call.front();
  if (!format_.open.empty() || first.kind != Kind::literal) return openings;
  for (std::size_t i = 1; i < format_.begin.size(); ++i) {
    if (first.text.starts_with(format_.begin[i])) openings.push_back(first.text);
  }
  return openings;
}

Value CallConstraint::calls(bool begun) const {
  List first;
  for (const Function& function : functions_) first.push_back(call(function, begun));
  if (format_.row_per_call || !parallel_) return either(std::move(first));
  List all;
  for (const Function& function : functions_) all.push_back(tag("", call(function, false), ""));
  if (!begun) return separated(std::move(all), format_.separator);
  List more;
  for (const Function& function : functions_) {
    more.push_back(tag(format_.separator, call(function, false), ""));
  }
  return sequence({either(std::move(first)), separated(std::move(more), "", false)});
}

// begun: the first call's first literal has been written.
Value CallConstraint::row(bool begun) const {
  const std::string end = format_.end.empty() ? "" : format_.end.front();
  return tag(begun ? "" : format_.open, calls(begun), format_.close + end);
}

Value CallConstraint::required() const {
  const Value marked = tag(begin(), row(false), "");
  // Where the answer's beginning is mark enough, models leave the marker out, and its end.
  const Value one = format_.starts_answer && !format_.begin.empty()
                        ? either({marked, tag(format_.open, calls(false), format_.close)})
                        : marked;
  if (!format_.row_per_call || !parallel_) return one;
  return separated({tag("", one, "")},
                   output_.dialect->channels ? "<|start|>assistant" : "\n");
}

Value CallConstraint::automatic() const {
  if (format_.starts_answer) {
    // What may be a call is one; where nothing is strict, only what cannot be anything else.
    List not_beginning;
    const bool strict = std::ranges::any_of(functions_, &Function::held);
    const bool python = format_.call.front().kind == Kind::name;
    for (const char* one : {"[", "{", " ", "\n", "\t", "\r"}) {
      if (strict) not_beginning.push_back(Value(one));
    }
    for (const Function& function : functions_) {
      if (strict) break;
      not_beginning.push_back(
          Value(python ? format_.open + function.name + "("
                       : format_.open + "{" + quoted(format_.keys.name) + ": " +
                             quoted(function.name)));
    }
    if (!format_.begin.empty()) not_beginning.push_back(Value(begin()));
    return either({required(), node("any_text", {{"text", Value("tokens")},
                                                 {"not_beginning", Value(std::move(not_beginning))}})});
  }
  List triggers = {Value(without_space(begin()))};
  List tags = {tag(begin(), row(false), "")};
  for (const std::string& opening : call_openings()) {
    triggers.push_back(Value(without_space(opening)));
    tags.push_back(tag(opening, row(true), ""));
  }
  return node("triggered_tags", {{"triggers", Value(std::move(triggers))},
                                 {"tags", Value(std::move(tags))},
                                 {"stop_after_first", Value(!parallel_)},
                                 {"text", Value("tokens")}});
}

Value CallConstraint::call(const Function& function, bool begun) const {
  Row row;
  const auto& parts = format_.call;
  for (std::size_t i = begun ? 1 : 0; i < parts.size(); ++i) {
    switch (parts[i].kind) {
      case Kind::literal:
        if (parts[i].optional > 1) {
          i += std::size_t(parts[i].optional) - 1;
        } else {
          row.literal(parts[i].text);
        }
        break;
      case Kind::name:
        row.literal(format_.name_prefix + function.name);
        if (!format_.name_index) break;
        row.literal(":");
        row.part(regex("[0-9]{1,3}"));
        break;
      case Kind::note:
        row.literal("function");
        break;
      case Kind::number:
        row.part(regex("[1-9][0-9]{0,2}"));
        break;
      case Kind::id:
        break;
      case Kind::object:
        row.literal("{" + quoted(format_.keys.name) + ": " + quoted(function.name) + ", " +
                    quoted(format_.keys.arguments.front()) + ": ");
        row.part(arguments(function, Kind::json));
        row.literal("}");
        break;
      case Kind::json:
      case Kind::parameters:
      case Kind::keywords:
        row.part(arguments(function, parts[i].kind));
        if (parts[i].kind == Kind::keywords) row.literal(")");
        break;
    }
  }
  return row.take();
}

Value CallConstraint::arguments(const Function& function, Kind kind) const {
  if (kind == Kind::parameters) return parameters(function);
  if (kind == Kind::keywords) return python_arguments(function);
  const bool held = function.held && function.parameters.is(Value::Kind::dict);
  return held ? arguments_node(function.parameters, function.place) : any_object();
}

// Bare text, or JSON where the schema says so.
Value CallConstraint::parameter(const Function& function, const std::string& name,
                                const Value& property) const {
  const ParameterFormat& format = format_.parameter;
  const JsonTypes types = output_.types ? output_.types->of(function.name, name) : JsonTypes{};
  const bool is_text = types.string || types.only_string();
  Value value = types.only_string() ? bare_string(format, property, place_of(function, name))
                : is_text           ? bare_text(format)
                        : schema_node(with_definitions(property, function.parameters),
                                      place_of(function, name));
  const Value values = member(property, "enum");
  if (values.is(Value::Kind::list)) {
    List texts;
    for (const Value& one : values.list()) {
      texts.push_back(text(one.is_string() ? one.string() : jinja::dump_json(one, {})));
    }
    if (!texts.empty()) value = either(std::move(texts));
  }
  const std::string line = format.own_lines ? "\n" : "";
  std::string begin = format.open + name + format.key_end;
  const Value whole = tag(format.attribute_end + format.value_begin + line, value, line + format.close);
  if (format.attribute_end.empty()) return tag(begin, whole, "");
  List words;
  for (const char* word : attribute_words(format, types)) words.push_back(text(word));
  return tag(begin, sequence({either(std::move(words)), whole}), "");
}

Value CallConstraint::parameters(const Function& function) const {
  const ParameterFormat& format = format_.parameter;
  if (!function.held) {
    const std::string line = format.own_lines ? "\n" : "";
    List words;
    for (const char* word : attribute_words(format, {true, true, true, true, true, true})) {
      words.push_back(text(word));
    }
    const Value attribute = format.attribute_end.empty()
                                ? text("")
                                : sequence({either(std::move(words)), text(format.attribute_end)});
    const Value name = sequence({regex("[^<>\"=\\s]+"), text(format.key_end), attribute,
                                 text(format.value_begin + line), bare_text(format)});
    return separated({tag(format.open, name, line + format.close)}, "", false);
  }
  List parts;
  const Value properties = member(function.parameters, "properties");
  if (properties.is(Value::Kind::dict)) {
    for (const auto& [key, property] : properties.dict()) {
      Value one = parameter(function, key.string(), property);
      parts.push_back(is_required(function.parameters, key) ? one : either({one, text("")}));
    }
  }
  return parts.empty() ? text("") : sequence(std::move(parts));
}

}  // namespace quire
