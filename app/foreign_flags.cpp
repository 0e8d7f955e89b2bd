#include "app/foreign_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <span>
#include <utility>

namespace quire {

namespace {

using Pair = std::pair<std::string_view, std::string_view>;

// Code of a checkpoint is never run, requests are logged only on demand, there is no uvicorn, no
// NCCL below one device, no compiler, no picture.
constexpr ForeignFlag kFlags[] = {
    {"--trust-remote-code", ""},
    {"--disable-log-requests", ""},
    {"--enable-log-requests", ""},
    {"--no-enable-log-requests", ""},
    {"--disable-log-stats", ""},
    {"--disable-uvicorn-access-log", ""},
    {"--disable-fastapi-docs", ""},
    {"--enable-tokenizer-info-endpoint", ""},
    {"--enable-request-id-headers", ""},
    {"--disable-cascade-attn", ""},
    {"--disable-custom-all-reduce", ""},
    {"--disable-chunked-mm-input", ""},
    {"--skip-mm-profiling", ""},
    {"--language-model-only", ""},
    {"--use-tqdm-on-load", ""},
    {"--no-use-tqdm-on-load", ""},
    {"--enable-flashinfer-autotune", ""},
    {"--no-enable-flashinfer-autotune", ""},
    {"--enable-server-load-tracking", ""},
    {"--no-enable-lora", ""},
    {"--use-v2-block-manager", ""},
    {"--disable-frontend-multiprocessing", ""},
    {"--disable-async-output-proc", ""},
    {"--log-error-stack", ""},
    {"--enable-log-outputs", ""},
    {"--enable-log-deltas", ""},
    {"--no-enable-log-deltas", ""},
    {"--enable-offline-docs", ""},
    {"--enable-reasoning", ""},
    {"--enable-eplb", ""},
    {"--disable-mm-preprocessor-cache", ""},
    {"--disable-nccl-for-dp-synchronization", ""},
    {"--fully-sharded-loras", ""},
    {"-O0", ""},
    {"-O1", ""},
    {"-O2", ""},
    {"-O3", ""},
    {"--swap-space", "*"},
    {"--max-num-partial-prefills", "1"},
    {"--max-long-partial-prefills", "1"},
    {"--num-scheduler-steps", "1"},
    {"--num-lookahead-slots", "0"},
    {"--preemption-mode", "recompute"},
    {"--worker-cls", "auto"},
    {"--data-parallel-size-local", "1"},
    {"--safetensors-load-strategy", "lazy"},
    {"--revision", "main"},
    {"--structured-outputs-config",
     "{\"backend\":\"auto\"}|{\"backend\":\"xgrammar\"}|{\"backend\":\"guidance\"}|"
     "{\"backend\":\"outlines\"}|{\"backend\":\"lm-format-enforcer\"}"},
    {"--structured-outputs-config.backend", "auto|xgrammar|guidance|outlines|lm-format-enforcer"},
    {"--uvicorn-log-level", "*"},
    {"--max-log-len", "*"},
    {"--show-hidden-metrics-for-version", "*"},
    {"--max-seq-len-to-capture", "*"},
    {"--max-parallel-loading-workers", "*"},
    {"--limit-mm-per-prompt", "*"},
    {"--mm-processor-cache-gb", "*"},
    {"--optimization-level", "*"},
    {"-O", "*"},
    {"-O.level", "*"},
    {"--attention-backend", "*"},
    {"--attention-config", "*"},
    {"--moe-backend", "*"},
    {"--kernel-config", "*"},
    {"--all2all-backend", "*"},
    {"--eplb-config", "*"},
    {"--num-redundant-experts", "*"},
    {"--max-lora-rank", "*"},
    {"--max-loras", "*"},
    {"--max-cpu-loras", "*"},
    {"--lora-dtype", "*"},
    {"--code-revision", "*"},
    {"--mm-processor-kwargs", "*"},
    {"--mm-encoder-tp-mode", "*"},
    {"--media-io-kwargs", "*"},
    {"--h11-max-incomplete-event-size", "*"},
    {"--h11-max-header-count", "*"},
    {"--profiler-config", "*"},
    {"--tokenizer-revision", "main"},
    {"--guided-decoding-backend", "auto|xgrammar|guidance|outlines|lm-format-enforcer"},
    {"--tokenizer-mode", "auto|hf"},
    {"--config-format", "auto|hf"},
    {"--model-impl", "auto|vllm"},
    {"--response-role", "assistant"},
    {"--chat-template-content-format", "auto|string|openai"},
    {"--distributed-executor-backend", "mp|uni"},
    {"--data-parallel-backend", "mp"},
    {"--logprobs-mode", "raw_logprobs"},
    {"--max-logprobs", "20"},
    {"--stream-interval", "1"},
    {"--api-server-count", "1"},
    {"--cpu-offload-gb", "0"},
    {"--pipeline-parallel-size", "1"},
    {"--prefill-context-parallel-size", "1"},
    {"--decode-context-parallel-size", "1"},
    {"--nnodes", "1"},
};

constexpr Pair kNames[] = {
    {"-tp", "--tensor-parallel-size"},
    {"-dp", "--data-parallel-size"},
    {"-pp", "--pipeline-parallel-size"},
    {"--spec-method", "--speculative-method"},
    {"--spec-model", "--speculative-model"},
    {"--spec-tokens", "--num-speculative-tokens"},
    {"-sc", "--speculative-config"},
    {"--speculative-config.method", "--speculative-method"},
    {"--speculative-config.model", "--speculative-model"},
    {"--speculative-config.num-speculative-tokens", "--num-speculative-tokens"},
    {"--speculative-config.prompt-lookup-max", "--ngram-prompt-lookup-max"},
    {"--speculative-config.prompt-lookup-min", "--ngram-prompt-lookup-min"},
    {"--speculative-config.disable-by-batch-size", "--speculative-disable-by-batch-size"},
    {"--speculative-config.draft-sample-method", "--speculative-draft-sample-method"},
};

constexpr Pair kAdvice[] = {
    {"--revision", "; write the model as org/name@revision"},
    {"--download-dir", "; models lie where HF_HOME or HF_HUB_CACHE says"},
    {"--hf-token", "; set HF_TOKEN"},
    {"--tokenizer", "; the tokenizer is read from the model's folder"},
    {"--root-path", "; let the proxy in front take the prefix off"},
    {"--compilation-config", "; see --enforce-eager and --cudagraph-capture-sizes"},
    {"--structured-outputs-config", "; there is one grammar engine, always on"},
    {"--override-generation-config", "; write generation_config.json, or send the members"},
    {"--return-tokens-as-token-ids", "; send return_tokens_as_token_ids"},
    {"--enable-expert-parallel", "; --tensor-parallel-size divides experts too"},
    {"--kv-cache-metrics", "; /metrics and /debug/blocks say what the cache holds"},
    {"--rope-scaling", "; write rope_scaling into the model's config.json"},
    {"--rope-theta", "; write rope_theta into the model's config.json"},
    {"--hf-config-path", "; config.json is read from the model's folder"},
    {"--calculate-kv-scales", "; the checkpoint's scales are used, or 1"},
    {"--disable-sliding-window", "; --max-model-len of the window's size has that effect"},
    {"--enable-sleep-mode", "; stop the server, and start it again when it is wanted"},
    {"--headless", "; an engine without a front end is `quire engine`"},
    {"--data-parallel-rank", "; every server stands alone: a balancer in front divides requests"},
    {"--data-parallel-start-rank", "; engines on other machines are named with --engine"},
    {"--data-parallel-address", "; engines on other machines are named with --engine"},
    {"--data-parallel-rpc-port", "; engines on other machines are named with --engine"},
    {"--data-parallel-hybrid-lb",
     "; every server stands alone: a balancer in front divides requests"},
    {"--data-parallel-external-lb",
     "; every server stands alone: a balancer in front divides requests"},
    {"--logits-processors", "; code of others is not run; see logit_bias, min_p and bad_words"},
    {"--tool-parser-plugin", "; code of others is not run; --tool-call-parser lists what there is"},
    {"--reasoning-parser-plugin",
     "; code of others is not run; --reasoning-parser lists what there is"},
    {"--middleware", "; code of others is not run; put a proxy in front"},
    {"--enable-lora", "; merge the adapter into the checkpoint"},
    {"--lora-modules", "; merge the adapter into the checkpoint"},
};

// Of the environment.
constexpr Pair kVariables[] = {
    {"VLLM_CPU_KVCACHE_SPACE", "--kv-cache-memory-bytes"},
    {"VLLM_BATCH_INVARIANT", "--deterministic"},
    {"VLLM_LOGGING_LEVEL", "--log-level"},
    {"VLLM_CPU_OMP_THREADS_BIND", "--cpu-threads, and taskset or numactl"},
    {"VLLM_CPU_NUM_OF_RESERVED_CPU", "--cpu-threads"},
    {"VLLM_ALLOW_LONG_MAX_MODEL_LEN", "--max-model-len, up to what the model was made for"},
    {"VLLM_PORT", "--port"},
    {"VLLM_HOST_IP", "--host"},
    {"VLLM_ENGINE_READY_TIMEOUT_S", "--engine-ready-timeout"},
    {"VLLM_NIXL_SIDE_CHANNEL_HOST", "--kv-listen"},
    {"VLLM_NIXL_SIDE_CHANNEL_PORT", "--kv-listen"},
};

std::string_view found(std::span<const Pair> pairs, std::string_view name) {
  const auto pair = std::ranges::find(pairs, name, &Pair::first);
  return pair == pairs.end() ? std::string_view() : pair->second;
}

}  // namespace

void ForeignFlag::check(const std::string& value) const {
  if (values == "*") return;
  const std::string all = "|" + std::string(values) + "|";
  std::string plain = value;
  if (plain.starts_with('{')) std::erase(plain, ' ');  // JSON, however it is spaced
  if (!plain.empty() && all.find("|" + plain + "|") != std::string::npos) return;
  std::string list(values);
  for (auto at = list.find('|'); at != list.npos; at = list.find('|')) list.replace(at, 1, ", ");
  throw CLI::ValidationError(std::string(name), "\"" + value + "\" is not offered; there is only " +
                                                    list + std::string(advice_instead_of(name)));
}

const ForeignFlag* find_foreign_flag(std::string_view name) {
  const auto flag = std::ranges::find(kFlags, name, &ForeignFlag::name);
  return flag == std::end(kFlags) ? nullptr : flag;
}

std::optional<std::string_view> own_name(std::string_view foreign) {
  const std::string_view name = found(kNames, foreign);
  return name.empty() ? std::nullopt : std::optional(name);
}

std::vector<std::pair<std::string, std::string>> unread_variables(const char* const* environment) {
  std::vector<std::pair<std::string, std::string>> unread;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with("VLLM_") || name == "VLLM_API_KEY") continue;
    // Kubernetes' own, beside a service named vllm.
    if (name.find("_SERVICE_") != name.npos || name.find("_PORT_") != name.npos) continue;
    if (entry.find("=tcp://") != entry.npos) continue;
    const std::string_view instead = found(kVariables, name);
    unread.emplace_back(name, instead.empty() ? "nothing here" : instead);
  }
  return unread;
}

std::string_view advice_instead_of(std::string_view flag) { return found(kAdvice, flag); }

}  // namespace quire
