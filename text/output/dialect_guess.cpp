// Which dialect a chat template shows: by what it writes for a call of an earlier turn, or tells
// the model to write.

#include <array>

#include "text/output/dialect.h"

namespace quire {
namespace {

// A template that has all of these, is of that dialect.
struct Signs {
  std::string_view name;
  std::array<std::string_view, 2> all;
};

// What is more particular comes first.
constexpr std::array kDialectSigns = {
    Signs{"gpt_oss", {"<|channel|>", "<|start|>"}},
    Signs{"deepseek_v41", {"｜DSML｜", " calls>"}},
    Signs{"deepseek_v4", {"｜DSML｜", "tool_calls>"}},
    Signs{"deepseek_v32", {"｜DSML｜"}},
    Signs{"step3", {"<steptml:invoke"}},
    Signs{"plamo3", {"<|plamo:begin_tool_requests:plamo|>"}},
    Signs{"kimi_k3", {"<|open|>", "<|sep|>"}},
    Signs{"k2_horizon", {"<ifm|tool_calls>"}},
    Signs{"hy_v3", {"<arg_key>", "<tool_sep>"}},
    Signs{"hy_v4", {"<arg_key>", "<tool_calls>"}},
    Signs{"longcat", {"<longcat_tool_call>"}},
    Signs{"dots", {"<dots_function_call>"}},
    Signs{"apertus", {"<|tools_prefix|>"}},
    Signs{"gigachat3", {"<|function_call|>", "<|role_sep|>"}},
    Signs{"deepseek_v3", {"tool▁calls▁begin", "```json"}},
    Signs{"deepseek_v31", {"tool▁calls▁begin"}},
    Signs{"kimi_k2", {"<|tool_call_argument_begin|>"}},
    Signs{"kimi_k2", {"<|tool_calls_section_begin|>"}},
    Signs{"minimax_m2", {"minimax:tool_call"}},
    Signs{"seed_oss", {"seed:tool_call"}},
    Signs{"glm47", {"<arg_key>", "</arg_key><arg_value>"}},
    Signs{"glm45", {"<arg_key>"}},
    Signs{"qwen3_coder", {"<tool_call>", "<function="}},
    Signs{"cohere_command", {"<|START_ACTION|>"}},
    Signs{"internlm2", {"<|action_start|>"}},
    Signs{"mistral_v11", {"[TOOL_CALLS]", "[ARGS]"}},
    Signs{"mistral_v3", {"[TOOL_CALLS]"}},
    Signs{"lfm2", {"<|tool_call_start|>"}},
    Signs{"olmo3", {"<function_calls>"}},
    Signs{"nemotron_json", {"<TOOLCALL>"}},
    Signs{"phi4_mini", {"functools"}},
    Signs{"phi4_mini", {"<|tool|>", "<|/tool|>"}},
    Signs{"granite", {"<|tool_call|>", "<|start_of_role|>"}},
    Signs{"granite-20b-fc", {"<function_call>"}},
    Signs{"hunyuan_a13b", {"<tool_calls>", "<think>"}},
    Signs{"jamba", {"<tool_calls>"}},
    Signs{"hermes", {"<tool_call>"}},
    Signs{"llama4_pythonic", {"func_name1(", "<|python_start|>"}},
    Signs{"llama4_pythonic", {"func_name1(", "<|header_start|>"}},
    Signs{"pythonic", {"func_name1("}},
    Signs{"llama3_json", {"<|python_tag|>"}},
    Signs{"llama3_json", {"<|start_header_id|>", "\"parameters\": dictionary"}},
    Signs{"llama3_json", {"<|header_start|>", "\"parameters\": dictionary"}},
    Signs{"xlam", {"\"tool_call_name\"", "\"arguments\""}},
};

constexpr std::array kReasoningSigns = {
    Signs{"harmony", {"<|channel|>", "<|start|>"}},
    Signs{"mistral", {"[THINK]"}},
    Signs{"minimax_m3", {"<mm:think>"}},
    Signs{"k2_horizon", {"<ifm|think>"}},
    Signs{"kimi_k3", {"<|open|>think"}},
    Signs{"plamo3", {"<|plamo:begin_think:plamo|>"}},
    Signs{"seed", {"seed:think"}},
    Signs{"cohere", {"<|START_THINKING|>"}},
    Signs{"granite", {"Here is my thought process:"}},
    Signs{"hunyuan_a13b", {"<think>", "<answer>"}},
    Signs{"hunyuan_a13b", {"<think>", "<tool_calls>"}},
    Signs{"think_response", {"<think>", "<response>"}},
    Signs{"think", {"<think>"}},
    Signs{"think", {"</think>"}},
};

bool shows(std::string_view text, std::string_view sign) { return text.find(sign) != text.npos; }

std::string_view name_shown(std::string_view text, const auto& signs) {
  for (const Signs& one : signs) {
    if (shows(text, one.all[0]) && shows(text, one.all[1])) return one.name;
  }
  return {};
}

}  // namespace

const Dialect* dialect_of_template(std::string_view chat_template) {
  const std::string_view name = name_shown(chat_template, kDialectSigns);
  return name.empty() ? nullptr : find_dialect(name);
}

const ReasoningFormat* reasoning_of_template(std::string_view chat_template) {
  const std::string_view name = name_shown(chat_template, kReasoningSigns);
  return name.empty() ? nullptr : find_reasoning_format(name);
}

const Dialect* find_dialect(std::string_view name, std::string_view chat_template) {
  if (name == "mistral")
    return find_dialect(shows(chat_template, "[ARGS]") ? "mistral_v11" : "mistral_v3");
  return find_dialect(name);
}

}  // namespace quire
