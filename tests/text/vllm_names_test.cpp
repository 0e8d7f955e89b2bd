// The names of vLLM 0.33's parsers: each is known or refused, and what a known one makes of a text is
// what vLLM's own parser made of it (tests/data/vllm_parsers: texts rendered from their results, kept
// where vLLM's parser found these again).

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "jinja/values/dict.h"
#include "jinja/values/json.h"
#include "tests/text/output_case.h"

namespace quire::test {
namespace {

using jinja::Value;

std::string file(const std::string& path) {
  std::ifstream in("tests/data/" + path);
  INFO(path);
  REQUIRE(in);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<Value> lines(const std::string& path) {
  std::istringstream in(file(path));
  std::vector<Value> all;
  for (std::string line; std::getline(in, line);) all.push_back(jinja::parse_json(line));
  return all;
}

std::string text_of(const Value& line, const char* name) { return line.dict().find(name)->string(); }

std::string compact(const Value& value) { return jinja::dump_json(value, {}); }

void check_calls(const Value& line, const Parsed& got) {
  const auto& wanted = line.dict().find("calls")->list();
  REQUIRE(got.calls.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    CHECK(got.calls[i].name == wanted[i].list()[0].string());
    CHECK(compact(jinja::parse_json(got.calls[i].arguments)) == compact(wanted[i].list()[1]));
  }
}

TEST_CASE("calls are read as vLLM's parsers of the same names read them", "[text][vllm]") {
  const auto types = std::make_shared<const ToolTypes>(file("parsers/tools.json"));
  const auto all = lines("vllm_parsers/tools.jsonl");
  REQUIRE(all.size() > 100);
  for (const Value& line : all) {
    const std::string text = text_of(line, "text");
    INFO(text_of(line, "parser") << " " << text);
    const OutputFormat format{.dialect = find_dialect(text_of(line, "parser")), .types = types};
    REQUIRE(format.dialect != nullptr);
    const Parsed whole = parse(format, {text});
    CHECK(whole.complaint.empty());
    CHECK(whole.content == text_of(line, "content"));
    check_calls(line, whole);
    CHECK(parse(format, characters(text)) == whole);
  }
}

TEST_CASE("thoughts are read as vLLM's parsers of the same names read them", "[text][vllm]") {
  const auto all = lines("vllm_parsers/reasoning.jsonl");
  REQUIRE(all.size() > 30);
  for (const Value& line : all) {
    const std::string text = text_of(line, "text");
    INFO(text_of(line, "parser") << " " << text);
    const OutputFormat format{.reasoning = find_reasoning_format(text_of(line, "parser"))};
    REQUIRE(format.reasoning != nullptr);
    const Parsed whole = parse(format, {text});
    CHECK(whole.reasoning == text_of(line, "reasoning"));
    CHECK(whole.content == text_of(line, "content"));
    CHECK(parse(format, characters(text)) == whole);
  }
}

TEST_CASE("every name of vLLM's is known, or one of those that are not", "[text][vllm]") {
  for (const char* name :
       {"apertus", "cohere_command3", "cohere_command4", "deepseek_v3", "deepseek_v31",
        "deepseek_v32", "deepseek_v4", "deepseek_v41", "dots", "ernie45", "gigachat3", "glm45",
        "glm47", "granite", "granite-20b-fc", "granite4", "hermes", "hunyuan_a13b", "hy_v3", "hy_v4",
        "internlm", "jamba", "k2_horizon", "kimi_k2", "kimi_k3", "lfm2", "ling3", "llama3_json",
        "llama4_json", "llama4_pythonic", "longcat", "mimo", "minimax_m2", "mistral", "olmo3",
        "openai", "phi4_mini_json", "plamo3", "poolside_v1", "pythonic", "qwen3_coder", "qwen3_json",
        "qwen3_xml", "seed_oss", "step3", "step3p5", "step5", "xlam"}) {
    INFO(name);
    CHECK(find_dialect(name) != nullptr);
  }
  for (const char* name : {"beam", "functiongemma", "gemma4", "hf", "inkling", "minicpm5",
                           "minimax_m3", "muse", "muse_glimmer", "musespark1x"}) {
    INFO(name);
    CHECK(find_dialect(name) == nullptr);
  }
  for (const char* name :
       {"cohere_command3", "cohere_command4", "deepseek_r1", "deepseek_v3", "deepseek_v4",
        "deepseek_v41", "ernie45", "gemma4", "glm45", "glm47", "granite", "granite_thinking_parser",
        "holo2", "hunyuan_a13b", "hy_v3", "hy_v4", "k2_horizon", "kimi_k2", "kimi_k3", "ling3",
        "mimo", "minicpmv", "minimax_m2", "minimax_m3", "mistral", "nemotron_v3", "olmo3",
        "openai_gptoss", "plamo3", "poolside_v1", "qwen3", "seed_oss", "step3", "step3p5", "step5"}) {
    INFO(name);
    CHECK(find_reasoning_format(name) != nullptr);
  }
  for (const char* name :
       {"beam", "hf", "inkling", "minimax_m2_append_think", "muse", "muse_glimmer", "musespark1x"}) {
    INFO(name);
    CHECK(find_reasoning_format(name) == nullptr);
  }
}

}  // namespace
}  // namespace quire::test
