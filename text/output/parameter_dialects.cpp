// Dialects that write the arguments one by one, typed by the tool's schema.

#include <iterator>

#include "text/output/dialect_parts.h"

namespace quire {
namespace {

using Kind = CallPart::Kind;

// <function=NAME><parameter=KEY>VALUE</parameter></function>
std::vector<Dialect> function_dialects() {
  const CallPart name = part(Kind::name);
  const CallPart parameters = part(Kind::parameters);
  const ParameterFormat plain{.open = "<parameter=", .key_end = ">", .close = "</parameter>\n"};
  ParameterFormat lines = plain;
  lines.own_lines = true;
  return {
      {.name = "qwen3_coder",
       .aliases = {"qwen3_xml", "qwen3_coder_xml", "step3p5", "step5", "nemotron_v3"},
       .calls = {.begin = {"<tool_call>\n", "<function="},
                 .call = {lit("<function="), name, lit(">\n"), parameters, lit("</function>")},
                 .row_per_call = true,
                 .end = {"\n</tool_call>"},
                 .parameter = lines}},
      {.name = "mimo",
       .calls = {.begin = {"<tool_call>\n", "<function="},
                 .call = {lit("<function="), name, lit(">\n"), parameters, lit("</function>")},
                 .row_per_call = true,
                 .end = {"\n</tool_call>"},
                 .parameter = plain}},
      {.name = "seed_oss",
       .calls = {.begin = {"<seed:tool_call>\n", "<function="},
                 .call = {lit("<function="), name, lit(">\n"), parameters, lit("</function>")},
                 .row_per_call = true,
                 .end = {"\n</seed:tool_call>"},
                 .parameter = plain}},
  };
}

// NAME <arg_key>KEY</arg_key><arg_value>VALUE</arg_value>
std::vector<Dialect> key_value_dialects() {
  const CallPart name = part(Kind::name);
  const CallPart parameters = part(Kind::parameters);
  const ParameterFormat glm{.open = "<arg_key>",
                            .key_end = "</arg_key>",
                            .value_begin = "<arg_value>",
                            .close = "</arg_value>"};
  return {
      {.name = "glm45",
       .aliases = {"poolside_v1"},
       .calls = {.begin = {"<tool_call>"},
                 .call = {name, parameters, lit("\n</tool_call>")},
                 .row_per_call = true,
                 .parameter = glm}},
      {.name = "glm47",
       .aliases = {"ling3"},
       .calls = {.begin = {"<tool_call>"},
                 .call = {name, parameters, lit("</tool_call>")},
                 .row_per_call = true,
                 .parameter = glm}},
      {.name = "hy_v3",
       .calls = {.begin = {"<tool_calls>\n"},
                 .call = {lit("<tool_call>"), name, lit("<tool_sep>\n"), parameters,
                          lit("</tool_call>\n")},
                 .end = {"</tool_calls>"},
                 .parameter = {.open = "<arg_key>",
                               .key_end = "</arg_key>",
                               .value_begin = "\n<arg_value>",
                               .close = "</arg_value>\n"}}},
      {.name = "hy_v4",
       .calls = {.begin = {"<tool_calls>"},
                 .call = {lit("<tool_call>"), name, parameters, lit("</tool_call>")},
                 .end = {"</tool_calls>"},
                 .parameter = glm}},
      {.name = "k2_horizon",
       .calls = {.begin = {"<ifm|tool_calls>\n"},
                 .call = {lit("<ifm|tool_call>"), name, parameters, lit("\n</ifm|tool_call>\n")},
                 .end = {"</ifm|tool_calls>"},
                 .parameter = {.open = "\n<ifm|arg_key>",
                               .key_end = "</ifm|arg_key>",
                               .value_begin = "\n<ifm|arg_value>",
                               .close = "</ifm|arg_value>"}}},
  };
}

// <invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>
std::vector<Dialect> invoke_dialects() {
  const CallPart name = part(Kind::name);
  const CallPart parameters = part(Kind::parameters);
  const ParameterFormat plain{
      .open = "<parameter name=\"", .key_end = "\">", .close = "</parameter>\n"};
  const std::vector<CallPart> invoke = {lit("<invoke name=\""), name, lit("\">\n"), parameters,
                                        lit("</invoke>\n")};
  return {
      {.name = "minimax_m2",
       .aliases = {"minimax"},
       .calls = {.begin = {"<minimax:tool_call>\n"},
                 .call = invoke,
                 .end = {"</minimax:tool_call>"},
                 .parameter = plain}},
      {.name = "dots",
       .calls = {.begin = {"<dots_function_call>\n"},
                 .call = invoke,
                 .end = {"</dots_function_call>"},
                 .parameter = plain}},
      {.name = "step3",
       .calls = {.begin = {"<｜tool_calls_begin｜>", "<｜tool_call_begin｜>"},
                 .call = {lit("<｜tool_call_begin｜>"), part(Kind::note), lit("<｜tool_sep｜>"),
                          lit("<steptml:invoke name=\""), name, lit("\">"), parameters,
                          lit("</steptml:invoke>"), lit("<｜tool_call_end｜>")},
                 .separator = "\n",
                 .end = {"<｜tool_calls_end｜>"},
                 .parameter = {.open = "<steptml:parameter name=\"",
                               .key_end = "\">",
                               .close = "</steptml:parameter>"}}},
      {.name = "kimi_k3",
       .calls = {.begin = {"<|open|>tools<|sep|>"},
                 .call = {lit("<|open|>call tool=\""), name, lit("\" index=\""),
                          part(Kind::number), lit("\"<|sep|>"), parameters,
                          lit("<|close|>call<|sep|>")},
                 .end = {"<|close|>tools<|sep|>"},
                 .parameter = {.open = "<|open|>argument key=\"",
                               .key_end = "\" type=\"",
                               .attribute_end = "\"<|sep|>",
                               .attribute_is_type = true,
                               .close = "<|close|>argument<|sep|>"}},
       .wrappers = {"<|open|>response<|sep|>", "<|close|>response<|sep|>",
                    "<|open|>message<|sep|>", "<|close|>message<|sep|>"}},
  };
}

// What DeepSeek has between brackets; its versions differ in a word and a blank.
Dialect dsml_dialect(std::string name, const std::string& mark, std::string row) {
  const std::string invoke = "<" + mark + "invoke name=\"";
  return {.name = std::move(name),
          .calls = {.begin = {"<" + mark + row + ">\n", invoke},
                    .call = {lit(invoke), part(Kind::name), lit("\">\n"), part(Kind::parameters),
                             lit("</" + mark + "invoke>\n")},
                    .end = {"</" + mark + row + ">"},
                    .parameter = {.open = "<" + mark + "parameter name=\"",
                                  .key_end = "\" string=\"",
                                  .attribute_end = "\">",
                                  .close = "</" + mark + "parameter>\n"}}};
}

}  // namespace

std::vector<Dialect> parameter_dialects() {
  std::vector<Dialect> all = {dsml_dialect("deepseek_v32", "｜DSML｜", "function_calls"),
                              dsml_dialect("deepseek_v4", "｜DSML｜", "tool_calls"),
                              dsml_dialect("deepseek_v41", "｜DSML｜ ", "calls")};
  for (auto group : {function_dialects(), key_value_dialects(), invoke_dialects()}) {
    std::move(group.begin(), group.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace quire
