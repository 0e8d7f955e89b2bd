// Which dialect is found for which chat template.

#include "text/output/dialect.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

namespace quire {
namespace {

namespace fs = std::filesystem;

struct Found {
  std::string folder, dialect, reasoning;
};

const std::vector<Found> kFound = {
    {"chatml_hermes_tools", "hermes", "none"},
    {"command_r_documents", "none", "none"},
    {"content_parts", "none", "none"},
    {"deepseek_r1", "deepseek_v3", "think"},
    {"deepseek_v3", "deepseek_v31", "think"},
    {"gemma2", "none", "none"},
    {"gemma3", "none", "none"},
    {"generation_mask", "none", "none"},
    {"gpt_oss_harmony", "gpt_oss", "harmony"},
    {"granite", "granite", "think_response"},
    {"llama31_tools", "llama3_json", "none"},
    {"llama32_date", "llama3_json", "none"},
    {"mistral_v3", "mistral_v3", "none"},
    {"mistral_v7", "mistral_v11", "none"},
    {"namespace_backwards", "none", "none"},
    {"nemotron_h", "nemotron_json", "think"},
    {"phi3", "none", "none"},
    {"phi4_mini", "phi4_mini", "none"},
    {"qwen3_coder_xml", "qwen3_coder", "none"},
    {"qwen3_thinking", "hermes", "think"},
    {"Qwen-Qwen2.5-7B-Instruct", "hermes", "none"},
    {"Qwen-Qwen3-0.6B", "hermes", "think"},
    {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek_v3", "think"},
    {"google-gemma-2-2b-it", "none", "none"},
    {"ibm-granite-granite-3.3-2B-Instruct", "granite", "think_response"},
    {"meta-llama-Llama-3.1-8B-Instruct", "llama3_json", "none"},
    {"microsoft-Phi-3.5-mini-instruct", "none", "none"},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral_v3", "none"},
    {"vllm-template_alpaca", "none", "none"},
    {"vllm-template_chatglm", "none", "none"},
    {"vllm-template_falcon", "none", "none"},
    {"vllm-template_inkbot", "none", "none"},
    {"vllm-tool_chat_template_deepseekr1", "deepseek_v3", "think"},
    {"vllm-tool_chat_template_deepseekv3", "deepseek_v3", "none"},
    {"vllm-tool_chat_template_functiongemma", "none", "none"},
    {"vllm-tool_chat_template_gemma3_pythonic", "pythonic", "none"},
    {"vllm-tool_chat_template_gemma4", "none", "none"},
    {"vllm-tool_chat_template_glm4", "glm45", "none"},
    {"vllm-tool_chat_template_granite", "granite", "none"},
    {"vllm-tool_chat_template_granite_20b_fc", "granite-20b-fc", "none"},
    {"vllm-tool_chat_template_hermes", "hermes", "none"},
    {"vllm-tool_chat_template_hunyuan_a13b", "hunyuan_a13b", "hunyuan_a13b"},
    {"vllm-tool_chat_template_internlm2_tool", "internlm2", "none"},
    {"vllm-tool_chat_template_llama3.1_json", "llama3_json", "none"},
    {"vllm-tool_chat_template_llama3.2_pythonic", "pythonic", "none"},
    {"vllm-tool_chat_template_llama4_json", "llama3_json", "none"},
    {"vllm-tool_chat_template_llama4_pythonic", "llama4_pythonic", "none"},
    {"vllm-tool_chat_template_mistral", "mistral_v3", "none"},
    {"vllm-tool_chat_template_mistral3", "mistral_v3", "none"},
    {"vllm-tool_chat_template_phi4_mini", "phi4_mini", "none"},
    {"vllm-tool_chat_template_toolace", "pythonic", "none"},
    {"vllm-tool_chat_template_xlam_llama", "xlam", "none"},
    {"vllm-tool_chat_template_xlam_qwen", "xlam", "none"},
};

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// {"chat_template.jinja"} of an unpacked model or of the goldens.
std::string template_in(const fs::path& folder) { return read(folder / "template.jinja"); }

TEST_CASE("the chat template shows how its model calls tools and thinks", "[text][dialect]") {
  const char* golden = std::getenv("QUIRE_GOLDEN_DIR");
  const fs::path dir = fs::path(golden ? golden : "tests/data/golden") / "chat_templates";
  int num_checked = 0;
  for (const Found& want : kFound) {
    fs::path folder = dir / want.folder;
    if (!fs::exists(folder)) folder = dir / "real" / want.folder;
    if (!fs::exists(folder / "template.jinja")) continue;
    INFO(want.folder);
    const std::string source = template_in(folder);
    const Dialect* dialect = dialect_of_template(source);
    const ReasoningFormat* reasoning = reasoning_of_template(source);
    CHECK((dialect ? dialect->name : "none") == want.dialect);
    CHECK((reasoning ? reasoning->name : "none") == want.reasoning);
    ++num_checked;
  }
  CHECK(num_checked >= (golden ? 50 : 5));
  const std::string shipped = read("models/quire-tiny/chat_template.jinja");
  if (!shipped.empty()) CHECK(dialect_of_template(shipped) == find_dialect("hermes"));
}

TEST_CASE("vLLM's names of parsers are known", "[text][dialect]") {
  for (const char* name : {"hermes",       "llama3_json", "llama4_json",    "llama4_pythonic",
                           "pythonic",     "mistral",     "deepseek_v3",    "deepseek_v31",
                           "deepseek_v32", "qwen3_coder", "qwen3_xml",      "glm45",
                           "glm47",        "kimi_k2",     "openai",         "phi4_mini_json",
                           "granite",      "granite4",    "granite-20b-fc", "internlm",
                           "jamba",        "minimax_m2",  "seed_oss",       "hunyuan_a13b",
                           "olmo3",        "xlam"}) {
    INFO(name);
    CHECK(find_dialect(name) != nullptr);
  }
  for (const char* name :
       {"deepseek_r1", "deepseek_v3", "qwen3", "openai_gptoss", "mistral", "granite", "seed_oss",
        "glm45", "kimi_k2", "minimax_m2", "hunyuan_a13b", "olmo3", "step3", "ernie45"}) {
    INFO(name);
    CHECK(find_reasoning_format(name) != nullptr);
  }
  CHECK(find_dialect("nobody's") == nullptr);
  CHECK(find_dialect("mistral", "… [TOOL_CALLS]name[ARGS]{}")->name == "mistral_v11");
  CHECK(find_dialect("mistral", "… [TOOL_CALLS] [{}]")->name == "mistral_v3");
}

TEST_CASE("no name stands for two dialects", "[text][dialect]") {
  std::set<std::string> names;
  for (const Dialect& dialect : dialects()) {
    CHECK(names.insert(dialect.name).second);
    for (const std::string& alias : dialect.aliases) CHECK(names.insert(alias).second);
  }
  names.clear();
  for (const ReasoningFormat& format : reasoning_formats()) {
    CHECK(names.insert(format.name).second);
    for (const std::string& alias : format.aliases) CHECK(names.insert(alias).second);
  }
}

// The automaton takes it for granted.
TEST_CASE("a dialect's lines are complete", "[text][dialect]") {
  for (const Dialect& dialect : dialects()) {
    INFO(dialect.name);
    const CallFormat& calls = dialect.calls;
    REQUIRE_FALSE(calls.call.empty());
    CHECK((!calls.begin.empty() || calls.starts_answer || dialect.channels));
    int num_arguments = 0;
    for (const CallPart& part : calls.call) {
      if (part.kind == CallPart::Kind::literal) CHECK_FALSE(part.text.empty());
      num_arguments += part.kind >= CallPart::Kind::object;
      if (part.kind == CallPart::Kind::parameters) {
        CHECK_FALSE(calls.parameter.open.empty());
        CHECK_FALSE(calls.parameter.key_end.empty());
        CHECK_FALSE(calls.parameter.close.empty());
      }
    }
    CHECK(num_arguments == 1);
  }
}

}  // namespace
}  // namespace quire
