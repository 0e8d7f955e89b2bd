#include <algorithm>

#include "text/output/dialect_parts.h"
#include "text/output/marker_matcher.h"

namespace quire {
namespace {

using Kind = CallPart::Kind;

ObjectKeys with_parameters() { return {"name", {"parameters", "arguments"}}; }

// Name and arguments in one JSON object.
std::vector<Dialect> object_dialects() {
  const CallPart object = part(Kind::object);
  return {
      {.name = "hermes",
       .aliases = {"qwen", "qwen25", "qwen3_json", "granite4", "jan", "ernie45"},
       .calls = {.begin = {"<tool_call>\n"},
                 .call = {object},
                 .row_per_call = true,
                 .end = {"\n</tool_call>"}}},
      {.name = "longcat",
       .calls = {.begin = {"<longcat_tool_call>\n"},
                 .call = {object},
                 .row_per_call = true,
                 .end = {"\n</longcat_tool_call>"}}},
      {.name = "gigachat3",
       .calls = {.begin = {"<|function_call|>", "function call<|role_sep|>\n"},
                 .call = {object},
                 .row_per_call = true}},
      {.name = "llama3_json",
       .aliases = {"llama4_json"},
       .calls = {.begin = {"<|python_tag|>"},
                 .starts_answer = true,
                 .call = {object},
                 .separator = "; ",
                 .keys = with_parameters()}},
      {.name = "mistral_v3",
       .aliases = {"mistral"},
       .calls = {.begin = {"[TOOL_CALLS]"},
                 .open = "[",
                 .call = {object},
                 .separator = ", ",
                 .close = "]",
                 .ids = CallIds::nine_letters}},
      {.name = "phi4_mini",
       .aliases = {"phi4_mini_json"},
       .calls = {.begin = {"functools["}, .call = {object}, .separator = ", ", .close = "]"}},
      {.name = "granite",
       .calls = {.begin = {"<|tool_call|>"},
                 .open = "[",
                 .call = {object},
                 .separator = ", ",
                 .close = "]"}},
      {.name = "granite-20b-fc",
       .aliases = {"granite_20b_fc"},
       .calls = {.begin = {"<function_call>"}, .call = {object}, .row_per_call = true}},
      {.name = "nemotron_json",
       .calls = {.begin = {"<TOOLCALL>"},
                 .open = "[",
                 .call = {object},
                 .separator = ", ",
                 .close = "]",
                 .end = {"</TOOLCALL>"}}},
      {.name = "xlam",
       .calls =
           {.starts_answer = true, .open = "[", .call = {object}, .separator = ", ", .close = "]"}},
      {.name = "internlm2",
       .aliases = {"internlm"},
       .calls = {.begin = {"<|action_start|>"},
                 .call = {lit("<|plugin|>\n"), object},
                 .row_per_call = true,
                 .end = {"<|action_end|>"},
                 .keys = with_parameters()}},
      {.name = "jamba",
       .calls = {.begin = {"<tool_calls>"},
                 .open = "[\n",
                 .call = {object},
                 .separator = ",\n",
                 .close = "\n]",
                 .end = {"</tool_calls>"}}},
      {.name = "hunyuan_a13b",
       .calls = {.begin = {"<tool_calls>"},
                 .open = "[",
                 .call = {object},
                 .separator = ",\n",
                 .close = "]",
                 .end = {"</tool_calls>"}}},
      {.name = "cohere_command",
       .aliases = {"cohere", "cohere_command3", "cohere_command4", "cohere2"},
       .calls = {.begin = {"<|START_ACTION|>"},
                 .open = "[\n    ",
                 .call = {object},
                 .separator = ",\n    ",
                 .close = "\n]",
                 .end = {"<|END_ACTION|>"},
                 .keys = {"tool_name", {"parameters"}}},
       .wrappers = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}},
  };
}

// A bare name, then the arguments as JSON.
std::vector<Dialect> named_json_dialects() {
  const CallPart name = part(Kind::name);
  const CallPart json = part(Kind::json);
  return {
      {.name = "mistral_v11",
       .calls = {.begin = {"[TOOL_CALLS]"},
                 .call = {name, lit("[CALL_ID]", 2), part(Kind::id), lit("[ARGS]", 1), json},
                 .row_per_call = true,
                 .ids = CallIds::nine_letters}},
      {.name = "deepseek_v3",
       .calls = {.begin = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
                 .call = {lit("<｜tool▁call▁begin｜>"), part(Kind::note), lit("<｜tool▁sep｜>"),
                          name, lit("\n```json\n"), json, lit("\n```"), lit("<｜tool▁call▁end｜>")},
                 .separator = "\n",
                 .end = {"<｜tool▁calls▁end｜>"}}},
      {.name = "deepseek_v31",
       .calls = {.begin = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
                 .call = {lit("<｜tool▁call▁begin｜>"), name, lit("<｜tool▁sep｜>"), json,
                          lit("<｜tool▁call▁end｜>")},
                 .end = {"<｜tool▁calls▁end｜>"}}},
      {.name = "apertus",
       .calls = {.begin = {"<|tools_prefix|>"},
                 .open = "[",
                 .call = {lit("{\""), name, lit("\": "), json, lit("}")},
                 .separator = ", ",
                 .close = "]",
                 .end = {"<|tools_suffix|>"}}},
      {.name = "plamo3",
       .calls = {.begin = {"<|plamo:begin_tool_requests:plamo|>"},
                 .call = {lit("<|plamo:begin_tool_request:plamo|>"),
                          lit("<|plamo:begin_tool_name:plamo|>"), name,
                          lit("<|plamo:end_tool_name:plamo|>"),
                          lit("<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>"),
                          json, lit("<|plamo:end_tool_arguments:plamo|>"),
                          lit("<|plamo:end_tool_request:plamo|>")},
                 .end = {"<|plamo:end_tool_requests:plamo|>"}}},
      {.name = "kimi_k2",
       .calls = {.begin = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
                 .call = {lit("<|tool_call_begin|>"), name, lit("<|tool_call_argument_begin|>"),
                          json, lit("<|tool_call_end|>")},
                 .end = {"<|tool_calls_section_end|>"},
                 .name_prefix = "functions.",
                 .name_index = true,
                 .ids = CallIds::written}},
      {.name = "gpt_oss",
       .aliases = {"openai", "openai_gptoss"},
       .calls = {.call = {json},
                 .end = {"<|call|>", "<|end|>", "<|return|>"},
                 .name_prefix = "functions."},
       .channels = true},
  };
}

// Calls as Python writes them.
std::vector<Dialect> python_dialects() {
  const std::vector<CallPart> call = {part(Kind::name), lit("("), part(Kind::keywords)};
  const CallFormat list{.open = "[", .call = call, .separator = ", ", .close = "]"};
  CallFormat bare = list, llama4 = list, lfm2 = list;
  bare.starts_answer = llama4.starts_answer = true;
  llama4.begin = {"<|python_start|>"};
  llama4.end = {"<|python_end|>"};
  lfm2.begin = {"<|tool_call_start|>"};
  lfm2.end = {"<|tool_call_end|>"};
  return {
      {.name = "pythonic", .calls = bare},
      {.name = "llama4_pythonic", .calls = llama4},
      {.name = "lfm2", .calls = lfm2},
      {.name = "olmo3",
       .calls = {.begin = {"<function_calls>\n"},
                 .call = call,
                 .separator = "\n",
                 .end = {"\n</function_calls>"}}},
  };
}

std::vector<Dialect> all_dialects() {
  std::vector<Dialect> all;
  for (auto group :
       {object_dialects(), named_json_dialects(), parameter_dialects(), python_dialects()}) {
    std::move(group.begin(), group.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace

const std::vector<Dialect>& dialects() {
  static const std::vector<Dialect> kAll = all_dialects();
  return kAll;
}

const Dialect* find_dialect(std::string_view name) { return find_named(dialects(), name); }

std::vector<std::string> Dialect::markers() const {
  std::vector<std::string> all = wrappers;
  const auto add = [&all](std::string_view text) {
    const std::string_view bare = without_space(text);
    if (!bare.empty()) all.emplace_back(bare);
  };
  if (channels) all = channel_markers();
  for (const auto& text : calls.begin) add(text);
  for (const auto& text : calls.end) add(text);
  for (const CallPart& part : calls.call) add(part.text);
  for (const std::string* text : {&calls.parameter.open, &calls.parameter.key_end,
                                  &calls.parameter.value_begin, &calls.parameter.close}) {
    add(*text);
  }
  return all;
}

}  // namespace quire
