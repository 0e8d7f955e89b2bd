#include "app/forgiving_args.h"

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>

#include "app/foreign_flags.h"

namespace quire {
namespace {

std::vector<std::string> words(const ForgivingArgs& args) {
  return {args.argv.begin(), args.argv.end()};
}

std::string refusal(std::vector<const char*> given) {
  CLI::App app;
  int seqs = 0;
  std::string model;
  app.add_option("--max-num-seqs", seqs);
  app.add_option("MODEL", model);
  app.set_config("--config");
  given.insert(given.begin(), "quire");
  try {
    parse_forgivingly(app, static_cast<int>(given.size()), given.data());
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("underscores are dashes, in the flag and not in its value", "[app][args]") {
  const char* given[] = {"quire_x", "a_b", "--max_model_len=8_k", "--served_model_name", "my_model",
                         "-q"};
  const ForgivingArgs args(6, given);
  CHECK(words(args) == std::vector<std::string>{"quire_x", "a_b", "--max-model-len=8_k",
                                                "--served-model-name", "my_model", "-q"});
  CHECK(args.without_effect.empty());
}

TEST_CASE("what there is nothing to switch is taken out and told", "[app][args]") {
  const char* given[] = {"quire", "--trust_remote_code", "M", "--disable-log-requests"};
  const ForgivingArgs args(4, given);
  CHECK(words(args) == std::vector<std::string>{"quire", "M"});
  CHECK(args.without_effect ==
        std::vector<std::string>{"--trust-remote-code", "--disable-log-requests"});
}

TEST_CASE("flags of vLLM's may ask for what happens anyway, and for nothing else", "[app][args]") {
  const char* given[] = {"quire", "-tp", "2", "--swap_space", "4", "--model-impl=auto", "M",
                         "--pipeline-parallel-size", "1", "--spec-tokens=3"};
  const ForgivingArgs args(10, given);
  CHECK(words(args) == std::vector<std::string>{"quire", "--tensor-parallel-size", "2", "M",
                                                "--num-speculative-tokens=3"});
  CHECK(args.without_effect == std::vector<std::string>{"--swap-space", "--model-impl",
                                                        "--pipeline-parallel-size"});
  CHECK(refusal({"M", "-pp", "2"}) ==
        "--pipeline-parallel-size: \"2\" is not offered; there is only 1");
  CHECK(refusal({"M", "--tokenizer-mode=mistral"}) ==
        "--tokenizer-mode: \"mistral\" is not offered; there is only auto, hf");
  CHECK(refusal({"M", "--swap-space"}) == "--swap-space: needs a value");
  CHECK(refusal({"M", "--revision", "main"}).empty());
  CHECK(refusal({"M", "--revision", "v1"}).ends_with(
      "there is only main; write the model as org/name@revision"));
  CHECK(refusal({"M", "--root-path", "/a"}) ==
        "--root-path: no such flag; let the proxy in front take the prefix off");
}

TEST_CASE("flags for what is one way here are taken; what changes answers says what works",
          "[app][args]") {
  const std::vector<std::vector<const char*>> taken = {
      {"-O3"},
      {"-O", "2"},
      {"-O.level=3"},
      {"--attention-backend", "FLASH_ATTN"},
      {"--enable-reasoning"},
      {"--enable-eplb"},
      {"--all2all-backend=deepep_low_latency"},
      {"--max_lora_rank", "32"},
      {"--code-revision", "main"},
      {"--mm-processor-kwargs", "{}"},
      {"--disable-mm-preprocessor-cache"},
      {"--h11-max-header-count=256"},
      {"--moe-backend", "triton"},
      {"--enable-log-outputs"},
      {"--profiler-config", "{}"},
      {"--structured-outputs-config", R"({ "backend": "xgrammar" })"},
      {"--structured-outputs-config.backend", "xgrammar"}};
  for (const auto& flag : taken) {
    std::vector<const char*> given{"quire"};
    given.insert(given.end(), flag.begin(), flag.end());
    INFO(flag.front());
    const ForgivingArgs args(static_cast<int>(given.size()), given.data());
    CHECK(words(args) == std::vector<std::string>{"quire"});
    CHECK(args.without_effect.size() == 1);
  }
  const char* given[] = {"quire", "--speculative-config.method=ngram",
                         "--speculative-config.num_speculative_tokens", "3"};
  CHECK(words(ForgivingArgs(4, given)) ==
        std::vector<std::string>{"quire", "--speculative-method=ngram", "--num-speculative-tokens",
                                 "3"});
  CHECK(refusal({"M", "--rope-scaling", "{}"}) ==
        "--rope-scaling: no such flag; write rope_scaling into the model's config.json");
  for (const char* flag :
       {"--calculate-kv-scales", "--enable-sleep-mode", "--headless", "--disable-sliding-window",
        "--data-parallel-address", "--data-parallel-rpc-port", "--data-parallel-rank"}) {
    INFO(flag);
    CHECK(refusal({"M", flag}).find("no such flag; --help") == std::string::npos);
    CHECK(refusal({"M", flag}).find("no such flag; ") != std::string::npos);
  }
  CHECK(refusal({"M", "--structured-outputs-config", R"({"disable_any_whitespace":true})"})
            .find("is not offered") != std::string::npos);
}

TEST_CASE("variables of vLLM's that nothing reads are named", "[app][args]") {
  const char* const environment[] = {"PATH=/bin", "VLLM_API_KEY=k", "VLLM_CPU_KVCACHE_SPACE=1",
                                     "VLLM_USE_V1=1", "VLLM_SERVICE_HOST=10.0.0.1",
                                     "VLLM_PORT=tcp://10.0.0.1:8000", nullptr};
  const auto unread = unread_variables(environment);
  REQUIRE(unread.size() == 2);
  CHECK(unread[0] == std::pair<std::string, std::string>{"VLLM_CPU_KVCACHE_SPACE",
                                                         "--kv-cache-memory-bytes"});
  CHECK(unread[1].first == "VLLM_USE_V1");
}

TEST_CASE("an unknown flag is named, with the one that was meant", "[app][args]") {
  CHECK(refusal({"M", "--max-num-seqs", "4"}).empty());
  CHECK(refusal({"M", "--max-num-seq", "4"}) ==
        "--max-num-seq: no such flag. Did you mean --max-num-seqs?");
  CHECK(refusal({"M", "--max-num-seq=4"}) ==
        "--max-num-seq: no such flag. Did you mean --max-num-seqs?");
  CHECK(refusal({"M", "--enable-dbo"}) == "--enable-dbo: no such flag; --help lists them");
  CHECK(refusal({"M", "--enable-lora"}) ==
        "--enable-lora: no such flag; merge the adapter into the checkpoint");
  CHECK(refusal({"M", "N"}) == "\"N\": one word too many");
}

}  // namespace quire
