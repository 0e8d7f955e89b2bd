// How families of models mark what they think.

#include "text/output/dialect_parts.h"

namespace quire {
namespace {

std::vector<ReasoningFormat> all_reasoning_formats() {
  return {
      {.name = "think",
       .aliases = {"deepseek_r1", "deepseek_v3", "deepseek_v4", "deepseek_v41", "qwen3", "glm45",
                   "glm47", "kimi_k2", "minimax_m2", "olmo3", "step3", "step3p5", "step5",
                   "nemotron_v3", "holo2", "granite_thinking_parser", "hy_v3", "hy_v4", "ling3",
                   "mimo", "minicpmv", "poolside_v1"},
       .open = {"<think>"},
       .close = {"</think>"}},
      {.name = "hunyuan_a13b",
       .open = {"<think>"},
       .close = {"</think>"},
       .wrappers = {"<answer>", "</answer>"}},
      {.name = "think_response",
       .aliases = {"ernie45"},
       .open = {"<think>"},
       .close = {"</think>"},
       .wrappers = {"<response>", "</response>"}},
      {.name = "seed",
       .aliases = {"seed_oss"},
       .open = {"<seed:think>"},
       .close = {"</seed:think>"}},
      {.name = "minimax_m3", .open = {"<mm:think>"}, .close = {"</mm:think>"}},
      {.name = "k2_horizon",
       .open = {"<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"},
       .close = {"</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"}},
      {.name = "kimi_k3",
       .open = {"<|open|>think<|sep|>"},
       .close = {"<|close|>think<|sep|>"},
       .wrappers = {"<|open|>response<|sep|>", "<|close|>response<|sep|>",
                    "<|open|>message<|sep|>", "<|close|>message<|sep|>"}},
      {.name = "plamo3",
       .open = {"<|plamo:begin_think:plamo|>"},
       .close = {"<|plamo:end_think:plamo|>"}},
      {.name = "gemma4", .open = {"<|channel>thought"}, .close = {"<channel|>"}},
      {.name = "mistral", .open = {"[THINK]"}, .close = {"[/THINK]"}},
      {.name = "granite",
       .open = {"Here is my thought process:", "Here's my thought process:"},
       .close = {"Here is my response:", "Here's my response:"}},
      {.name = "cohere",
       .aliases = {"cohere_command", "cohere_command3", "cohere_command4", "cohere2"},
       .open = {"<|START_THINKING|>"},
       .close = {"<|END_THINKING|>"},
       .wrappers = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}},
      {.name = "harmony", .aliases = {"openai_gptoss", "gpt_oss", "openai"}, .channels = true},
  };
}

}  // namespace

std::vector<std::string> channel_markers() {
  return {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>",
          "<|end|>",   "<|call|>",    "<|return|>"};
}

const std::vector<ReasoningFormat>& reasoning_formats() {
  static const std::vector<ReasoningFormat> kAll = all_reasoning_formats();
  return kAll;
}

const ReasoningFormat* find_reasoning_format(std::string_view name) {
  return find_named(reasoning_formats(), name);
}

std::vector<std::string> ReasoningFormat::markers() const {
  if (channels) return channel_markers();
  std::vector<std::string> all = wrappers;
  all.insert(all.end(), open.begin(), open.end());
  all.insert(all.end(), close.begin(), close.end());
  return all;
}

}  // namespace quire
