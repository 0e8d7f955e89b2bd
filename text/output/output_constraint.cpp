#include "text/output/output_constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_set>

#include "base/error.h"
#include "jinja/values/json.h"
#include "text/output/call_constraint.h"
#include "text/output/callable.h"
#include "text/output/json_scanner.h"

namespace quire {

using namespace constraint;

namespace {

// Weak models would write line after line of it.
constexpr const char* kWhitespace = "[ ]?";

constexpr const char* kAnalysis = "<|channel|>analysis<|message|>";
constexpr const char* kNextMessage = "<|end|><|start|>assistant";

bool has_channels(const OutputFormat& format) {
  return (format.dialect != nullptr && format.dialect->channels) ||
         (format.reasoning != nullptr && format.reasoning->channels);
}

bool can_think(const OutputFormat& format) {
  if (format.reasoning == nullptr) return false;
  return format.reasoning->channels || format.may_think || format.starts_inside;
}

bool is_strict(const Value& function) {
  const Value strict = member(function, "strict");
  return strict.is(Value::Kind::boolean) && strict.boolean();
}

std::vector<CallConstraint::Function> functions_of(const OutputDemand& demand) {
  std::vector<CallConstraint::Function> functions;
  const Value tools = jinja::parse_json(demand.tools);
  const std::unordered_set<std::string> only(demand.only.begin(), demand.only.end());
  int index = 0;
  for (const Value& tool : tools.items()) {
    const Value function = member(tool, "function");
    const std::string place = fmt::format("/tools/{}/{}", index++, demand.parameters_at);
    const std::string name = member(function, "name").string();
    if (!only.empty() && !only.contains(name)) continue;
    const bool held = demand.calls == CallDemand::required || is_strict(function);
    if (held && !admits_object(member(function, "parameters"))) {
      throw Failure(Error{ErrorCode::invalid_argument,
                          "the parameters of function " + name +
                              " admit no object, and arguments are one",
                          place});
    }
    functions.push_back({name, member(function, "parameters"), held, is_strict(function), place});
  }
  return functions;
}

// Some families put their answer between marks of its own.
Value wrapped(const Value& answer, const OutputFormat& format) {
  List ways = {answer};
  const auto add = [&](const std::vector<std::string>& wrappers) {
    for (std::size_t i = 0; i + 1 < wrappers.size(); i += 2) {
      ways.push_back(tag(wrappers[i], sequence({space(), answer, space()}), wrappers[i + 1]));
    }
  };
  if (format.reasoning != nullptr) add(format.reasoning->wrappers);
  if (format.dialect != nullptr && ways.size() == 1) add(format.dialect->wrappers);
  return either(std::move(ways));
}

// The thought that the prompt has opened has to end; one that the model may open comes or not.
Value after_thought(const OutputFormat& format, const Value& answer) {
  if (!can_think(format)) return answer;
  List closes, without;
  for (const std::string& mark : format.reasoning->close) {
    closes.push_back(text(mark));
    without.push_back(Value(mark));
  }
  const Value thought = node(
      "any_text", {{"text", Value("bytes")}, {"without", Value(std::move(without))}});
  const Value end = either(std::move(closes));
  if (format.starts_inside) return sequence({thought, end, space(), answer});
  List ways = {text("")};
  for (const std::string& mark : format.reasoning->open) {
    ways.push_back(sequence({text(mark), thought, end, space()}));
  }
  return sequence({either(std::move(ways)), answer});
}

// A message's text: whatever ends one, and not only what should, is no text.
Value message_text() {
  List marks;
  for (const char* mark : {"<|end|>", "<|start|>", "<|call|>", "<|return|>"}) {
    marks.push_back(Value(mark));
  }
  return node("any_text", {{"text", Value("bytes")}, {"without", Value(std::move(marks))}});
}

// Harmony: messages of thought, and where any text will do of notes, then the one that counts.
Value after_messages(const Value& last, bool notes) {
  const Value text = message_text();
  List tags = {tag(kAnalysis, text, kNextMessage)};
  if (notes) tags.push_back(tag("<|channel|>commentary<|message|>", text, kNextMessage));
  return sequence({separated(std::move(tags), "", false), last});
}

Value final_message(const std::optional<Value>& answer) {
  if (!answer) return tag("<|channel|>final<|message|>", message_text(), "");
  return sequence({text("<|channel|>final"), either({text(""), text(" <|constrain|>json")}),
                   text("<|message|>"), *answer});
}

// Whatever their schemas ask for beyond what can be enforced, these functions can be called.
List not_strict_places(const std::vector<CallConstraint::Function>& functions) {
  List places;
  for (const auto& function : functions) {
    if (function.held && !function.is_strict) places.push_back(Value(function.place));
  }
  return places;
}

Value body(const OutputFormat& format, const OutputDemand& demand,
           const std::vector<CallConstraint::Function>& functions, const std::optional<Value>& answer) {
  const bool channels = has_channels(format);
  const auto plain = [&] {
    if (channels) return final_message(answer);
    return answer ? wrapped(*answer, format) : any_text("tokens");
  };
  if (demand.calls == CallDemand::none) return plain();
  const CallConstraint calls(format, functions, demand.parallel);
  if (demand.calls == CallDemand::required) return calls.required();
  if (channels || answer) return either({calls.required(), plain()});
  return calls.automatic();
}

Dict thinking(const OutputFormat& format, int budget) {
  const bool channels = has_channels(format);
  List open;
  if (channels) open.push_back(Value(kAnalysis));
  for (const std::string& mark : format.reasoning->open) open.push_back(Value(mark));
  Dict thinking;
  thinking.set("budget", Value(std::int64_t{budget}));
  thinking.set("open", Value(std::move(open)));
  List close;
  if (channels) close.push_back(Value("<|end|>"));
  for (const std::string& mark : format.reasoning->close) close.push_back(Value(mark));
  thinking.set("close", Value(std::move(close)));
  thinking.set("inside", Value(format.starts_inside));
  thinking.set("several", Value(channels));
  return thinking;
}

}  // namespace

std::string output_constraint(const OutputFormat& format, const OutputDemand& demand) {
  const bool limits_thought = demand.thinking_budget && can_think(format);
  if (demand.calls == CallDemand::none && demand.answer.empty() && !limits_thought) return {};
  std::optional<Value> answer;
  if (!demand.answer.empty()) answer = node("answer");
  Dict document;
  std::vector<CallConstraint::Function> functions;
  if (demand.calls != CallDemand::none) functions = functions_of(demand);
  const Value whole = body(format, demand, functions, answer);
  const bool notes = !answer && demand.calls != CallDemand::required;
  document.set("format", has_channels(format) ? after_messages(whole, notes)
                                              : after_thought(format, whole));
  if (List places = not_strict_places(functions); !places.empty()) {
    document.set("not_strict", Value(std::move(places)));
  }
  if (limits_thought) document.set("thinking", Value(thinking(format, *demand.thinking_budget)));
  if (demand.is_part) {
    // its whole says so
  } else if (!demand.any_whitespace && !demand.whitespace_pattern) {
    document.set("any_whitespace", Value(false));
  } else {
    document.set("whitespace_pattern", Value(demand.whitespace_pattern.value_or(kWhitespace)));
  }
  if (demand.whitespace_pattern && !demand.is_part) {
    document.set("whitespace_place", Value(demand.whitespace_place));
  }
  std::string json = jinja::dump_json(Value(std::move(document)), {});
  // To the letter: a schema's numbers and the order of its members are the client's.
  if (answer) json.replace(json.size() - 1, 1, ", \"answer\": " + demand.answer + "}");
  return json;
}

}  // namespace quire
