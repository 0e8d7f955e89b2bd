#include "app/args/forgiving_args.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "app/args/foreign_flags.h"
#include "tests/app/args/some_flags.h"

namespace quire::test {

TEST_CASE("underscores are dashes, in the flag and not in its value", "[app][args]") {
  const Read args = read({"a_b", "--max_model_len=8_k", "--served_model_name", "my_model"});
  CHECK(args.words == Words{"a_b", "--max-model-len=8_k", "--served-model-name", "my_model"});
  CHECK(args.without_effect.empty());
}

TEST_CASE("what there is nothing to switch is taken out and told", "[app][args]") {
  const Read args = read({"--trust_remote_code", "M", "--disable-log-requests"});
  CHECK(args.words == Words{"M"});
  CHECK(args.without_effect == Words{"--trust-remote-code", "--disable-log-requests"});
}

TEST_CASE("a flag whose value is missing does not take the next flag", "[app][args]") {
  Command command;
  CHECK(command.refusal({"M", "--api-key", "--max-num-seqs", "4"}) ==
        "--api-key: needs a value before --max-num-seqs");
  CHECK(command.keys.empty());
  CHECK(refusal({"M", "--swap-space", "--enforce-eager"}) ==
        "--swap-space: needs a value before --enforce-eager");
  CHECK(refusal({"M", "--api-key", "--unknown"}) == "--api-key: needs a value before --unknown");
  CHECK(refusal({"M", "--api-key", "-q", "int8"}) == "--api-key: needs a value before -q");
  CHECK(refusal({"M", "--api-key", "-O3"}) == "--api-key: needs a value before -O3");
  CHECK(refusal({"M", "-tp", "-dp", "2"}) == "--tensor-parallel-size: needs a value before -dp");
  CHECK(refusal({"M", "--limit-mm-per-prompt.image", "--enforce-eager"}) ==
        "--limit-mm-per-prompt.image: needs a value before --enforce-eager");
  CHECK(refusal({"M", "--swap-space"}) == "--swap-space: needs a value");
  CHECK(refusal({"M", "--max-model-len"}) == "--max-model-len: needs a value");
  CHECK(command.refusal({"M", "--api-key=--host", "--max-model-len", "-1"}).empty());
  CHECK(command.keys == Words{"--host"});
  CHECK(command.seqs == -1);
  CHECK(command.refusal({"M", "--api-key=", "--max-num-seqs", "4"}).empty());
  CHECK(command.keys == Words{""});  // which the server refuses
  CHECK(refusal({"M", "--no-enforce-eager=false"}) == "--no-enforce-eager: takes no value");
}

TEST_CASE("of a flag with one value the last counts", "[app][args]") {
  CHECK(read({"M", "--max-num-seqs", "4", "-q=int8", "--max-model-len", "9", "--quantization",
              "int4", "--max_num_seqs=8"})
            .words ==
        Words{"M", "--max-num-seqs=8", "--quantization", "int4", "--max-model-len", "9"});
  // No list before it goes on.
  CHECK(read({"--api-key", "a", "--max-num-seqs", "4", "M", "--max-num-seqs=8"}).words ==
        Words{"--api-key", "a", "--max-num-seqs=8", "M"});
  CHECK(read({"M", "--served-model-name", "a", "--api-key", "b"}).words ==
        Words{"M", "--served-model-name", "a", "--api-key", "b"});
  Command command;
  CHECK(command
            .refusal({"M", "--max-num-seqs", "4", "--enforce-eager", "--max-num-seqs", "8",
                      "--enforce-eager", "--api-key", "a", "--api-key", "b"})
            .empty());
  CHECK(command.seqs == 8);
  CHECK(command.eager);
  CHECK(command.keys == Words{"a", "b"});
}

TEST_CASE("a flag of several values keeps them all", "[app][args]") {
  Command command;
  CHECK(command.refusal({"M", "--allowed-origins", "a", "--allowed-origins", "b,c"}).empty());
  CHECK(command.origins == Words{"a", "b,c"});
}

TEST_CASE("a list goes on to the next flag, and its words are taken as they are", "[app][args]") {
  Command command;
  CHECK(command.refusal({"M", "--api-key", "[a,b]", "c", "--api-key=[d]", "--max-num-seqs", "4"})
            .empty());
  CHECK(command.keys == Words{"[a,b]", "c", "[d]"});
  CHECK(command.model == "M");
  CHECK(command.seqs == 4);
  ::setenv("QUIRE_TEST_KEYS", "[a,b]", 1);
  Command of_environment;
  CHECK(of_environment.refusal({"M"}).empty());
  CHECK(of_environment.keys == Words{"[a,b]"});
  ::unsetenv("QUIRE_TEST_KEYS");
}

TEST_CASE("short flags are not bundled", "[app][args]") {
  CHECK(refusal({"-hf", "org/model"}) ==
        "-hf: no such flag; write org/name as MODEL: quire serve org/name");
  CHECK(refusal({"M", "-qint8"}) == "-qint8: no such flag; --help lists them");
  CHECK(refusal({"M", "-tp1"}) == "-tp1: no such flag; --help lists them");
  Command command;
  CHECK(command.refusal({"M", "-q=int8"}).empty());
  CHECK(command.quantization == "int8");
  CHECK(read({"M", "-h", "--nonsense"}).words == Words{"--help"});
}

TEST_CASE("flags of other servers are answered with the one that does it", "[app][args]") {
  for (const char* flag : {"-m",
                           "-c",
                           "-ngl",
                           "-np",
                           "-t",
                           "-a",
                           "--jinja",
                           "-fa",
                           "--slots",
                           "--ctx-size",
                           "--n-gpu-layers",
                           "--parallel",
                           "--threads",
                           "--model-id",
                           "--num-shard",
                           "--max-total-tokens",
                           "--max-input-tokens",
                           "--quantize",
                           "--model-path",
                           "--tp-size",
                           "--mem-fraction-static",
                           "--context-length"}) {
    INFO(flag);
    const std::string why = refusal({flag, "4"});
    CHECK(why.find("no such flag; ") != std::string::npos);
    CHECK(why.find("--help lists") == std::string::npos);
  }
  CHECK(refusal({"-c", "4096"}) == "-c: no such flag; see --max-model-len");
}

TEST_CASE("the negation of what is off is taken", "[app][args]") {
  for (const char* flag :
       {"--no-trust-remote-code", "--no-enable-expert-parallel", "--no-enable-sleep-mode",
        "--no-disable-log-stats", "--no-disable-cascade-attn", "--no-calculate-kv-scales",
        "--no-enable-log-outputs", "--no-enable-log-requests", "--no-enable_lora",
        "--no-use-tqdm-on-load"}) {
    INFO(flag);
    Command command;
    CHECK(command.refusal({"M", flag}).empty());
    CHECK(command.without_effect.size() == 1);
  }
  Command command;
  CHECK(command.refusal({"M", "--enforce-eager", "--no-enforce-eager"}).empty());
  CHECK_FALSE(command.eager);
  CHECK(refusal({"M", "--no-enforce-eagr"}).ends_with("Did you mean --no-enforce-eager?"));
  CHECK(refusal({"M", "--no-max-num-seqs"}) ==
        "--no-max-num-seqs: no such flag; --help lists them");
  CHECK(refusal({"M", "--no-tokenizer"}) == "--no-tokenizer: no such flag; --help lists them");
}

TEST_CASE("--disable-x says no to --enable-x, and the reverse", "[app][args]") {
  Command command;
  CHECK(command.refusal({"M", "--disable-prefix-caching", "--enable_hybrid_kv_cache_manager"}).empty());
  CHECK_FALSE(command.caching);
  CHECK(command.hybrid);
  for (const char* flag :
       {"--disable-lora", "--disable-eplb", "--enable-cascade-attn", "--enable-log-stats",
        "--disable-sleep-mode", "--enable-fastapi-docs", "--enable-lora=false",
        "--trust-remote-code=true", "--trust-remote-code=False"}) {
    INFO(flag);
    Command one;
    CHECK(one.refusal({"M", flag}).empty());
    CHECK(one.without_effect.size() == 1);
  }
  CHECK(refusal({"--disable-prefix-caching=false"}) == "--disable-prefix-caching: takes no value");
  CHECK(refusal({"--trust-remote-code=banana"}) ==
        "--trust-remote-code: \"banana\" is neither true nor false");
  // Refused by themselves, though their inverses are taken.
  CHECK(refusal({"--enable-log-requests"}).find("--access-log") != std::string::npos);
  CHECK(refusal({"--disable-fastapi-docs"}).find("always there") != std::string::npos);
  CHECK(refusal({"--enable-lora=true"}).find("merge the adapter") != std::string::npos);
  // Never the opposite.
  CHECK(refusal({"--disable-prefx-caching"}).ends_with("Did you mean --disable-prefix-caching?"));
  CHECK(refusal({"--enable-hybrid-kv-cache-mngr"})
            .ends_with("Did you mean --enable-hybrid-kv-cache-manager?"));
  CHECK(refusal({"--no-disable-prefix-caching"}).find("Did you mean") == std::string::npos);
  CHECK(refusal({"--disable-max-num-seqs"}).ends_with("; --help lists them"));
}

TEST_CASE("flags of vLLM's may ask for what happens anyway, and for nothing else", "[app][args]") {
  const Read args = read({"-tp", "2", "--swap_space", "4", "--model-impl=auto", "M",
                          "--pipeline-parallel-size", "1", "--spec-tokens=3"});
  CHECK(args.words == Words{"--tensor-parallel-size", "2", "M", "--num-speculative-tokens=3"});
  CHECK(args.without_effect == Words{"--swap-space", "--model-impl", "--pipeline-parallel-size"});
  CHECK(refusal({"M", "-pp", "2"}) ==
        "--pipeline-parallel-size: \"2\" is not offered; there is only 1");
  CHECK(refusal({"M", "--tokenizer-mode=mistral"}) ==
        "--tokenizer-mode: \"mistral\" is not offered; there is only auto, hf");
  CHECK(refusal({"M", "--revision", "main"}).empty());
  CHECK(refusal({"M", "--revision", "v1"})
            .ends_with("there is only main; write the model as org/name@revision"));
  CHECK(refusal({"M", "--root-path", "/a"}) ==
        "--root-path: no such flag; let the proxy in front take the prefix off");
}

TEST_CASE("flags for what is one way here are taken; what is not done says what works",
          "[app][args]") {
  const std::vector<std::vector<const char*>> taken = {
      {"-O3"},
      {"-O", "2"},
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
      {"--profiler-config", "{}"},
      {"--profiler-config", R"({"profiler": null})"},
      {"--cpu-offload-gb", "0.0"},
      {"--api-server-count", "4"},
      {"--distributed-executor-backend", "ray"},
      {"--safetensors-load-strategy", "prefetch"},
      {"--structured-outputs-config", "{\n \"backend\" : \"auto\"\n}"},
      {"--structured-outputs-config", R"({ "backend": "xgrammar" })"}};
  for (const auto& flag : taken) {
    INFO(flag.front());
    const Read args = read(flag);
    CHECK(args.words.empty());
    CHECK(args.without_effect.size() == 1);
  }
  CHECK(refusal({"M", "--fingerprint-mode=none"}) ==
        "--fingerprint-mode: \"none\" is not offered; there is only full; system_fingerprint names "
        "version and model");
  CHECK(refusal({"M", "--profiler-config.profiler", "torch"}).find("no /start_profile") !=
        std::string::npos);
  CHECK(refusal({"M", "--cpu-offload-gb", "1.0"}).find("is not offered") != std::string::npos);
  CHECK(refusal({"M", "--cpu-offload-gb", "0.05"}).find("is not offered") != std::string::npos);
  CHECK(refusal({"M", "--enable-mfu-metrics"}).find("not operations") != std::string::npos);
  CHECK(refusal({"M", "--stream-interval", "4"}).find("each token when") != std::string::npos);
  CHECK(refusal({"M", "--rope-scaling", "{}"}) ==
        "--rope-scaling: no such flag; write rope_scaling into the model's config.json");
  for (const char* flag :
       {"--calculate-kv-scales", "--enable-sleep-mode", "--headless", "--disable-sliding-window",
        "--data-parallel-address", "--data-parallel-rpc-port", "--data-parallel-rank",
        "--enable-log-requests", "--enable-log-outputs", "--enable-log-deltas",
        "--show-hidden-metrics-for-version=0.9"}) {
    INFO(flag);
    CHECK(refusal({"M", flag}).find("no such flag; --help") == std::string::npos);
    CHECK(refusal({"M", flag}).find("no such flag; ") != std::string::npos);
  }
  CHECK(refusal({"M", "--structured-outputs-config", R"({"disable_any_whitespace":true})"})
            .find("is not offered") != std::string::npos);
}

TEST_CASE("a list of vLLM's without effect is taken out whole", "[app][args]") {
  const Read args = read({"M", "--ignore-patterns", "a", "b", "--numa-bind-nodes", "0", "1",
                          "--enforce-eager", "--ignore-patterns=c", "--", "N"});
  CHECK(args.words == Words{"M", "--enforce-eager", "--", "N"});
  CHECK(args.without_effect ==
        Words{"--ignore-patterns", "--numa-bind-nodes", "--ignore-patterns"});
  CHECK(refusal({"M", "--ignore-patterns"}) == "--ignore-patterns: needs a value");
}

TEST_CASE("variables of vLLM's that nothing reads are named", "[app][args]") {
  const char* const environment[] = {"PATH=/bin",
                                     "VLLM_API_KEY=k",
                                     "VLLM_CPU_KVCACHE_SPACE=1",
                                     "VLLM_USE_V1=1",
                                     "VLLM_HOST_IP=10.0.0.1",
                                     "VLLM_SERVICE_HOST=10.0.0.1",
                                     "VLLM_PORT=tcp://10.0.0.1:8000",
                                     nullptr};
  const auto unread = unread_variables(environment);
  REQUIRE(unread.size() == 3);
  CHECK(unread[0] ==
        std::pair<std::string, std::string>{"VLLM_CPU_KVCACHE_SPACE", "--kv-cache-memory-bytes"});
  CHECK(unread[1].first == "VLLM_USE_V1");
  // Of communication between nodes: neither --host nor --port.
  CHECK(unread[2] == std::pair<std::string, std::string>{"VLLM_HOST_IP", "nothing here"});
}

TEST_CASE("an unknown flag is named, with the one that was meant", "[app][args]") {
  CHECK(refusal({"M", "--max-num-seqs", "4"}).empty());
  CHECK(refusal({"M", "--max-num-seq", "4"}) ==
        "--max-num-seq: no such flag. Did you mean --max-num-seqs?");
  CHECK(refusal({"M", "--max-num-seq=4"}) ==
        "--max-num-seq: no such flag. Did you mean --max-num-seqs?");
  CHECK(refusal({"M", "--nonsense"}) == "--nonsense: no such flag; --help lists them");
  CHECK(refusal({"M", "--enable-lora"}) ==
        "--enable-lora: no such flag; merge the adapter into the checkpoint");
  CHECK(refusal({"M", "N"}) == "\"N\": one word too many");
  CHECK(refusal({"--enforce-eager", "False", "M"}) ==
        "--enforce-eager: takes no value; instead of False write --no-enforce-eager");
  CHECK(refusal({"--trust-remote-code", "True", "M"}) ==
        "--trust-remote-code: takes no value; leave True out");
}

}  // namespace quire::test
