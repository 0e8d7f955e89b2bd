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
    {"--structured-outputs-config", "{\"backend\":\"auto\"}|{\"backend\": \"auto\"}"},
    {"--uvicorn-log-level", "*"},
    {"--max-log-len", "*"},
    {"--show-hidden-metrics-for-version", "*"},
    {"--max-seq-len-to-capture", "*"},
    {"--max-parallel-loading-workers", "*"},
    {"--limit-mm-per-prompt", "*"},
    {"--mm-processor-cache-gb", "*"},
    {"--optimization-level", "*"},
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
    {"-tp", "--tensor-parallel-size"},       {"-dp", "--data-parallel-size"},
    {"-pp", "--pipeline-parallel-size"},     {"--spec-method", "--speculative-method"},
    {"--spec-model", "--speculative-model"}, {"--spec-tokens", "--num-speculative-tokens"},
    {"-sc", "--speculative-config"},
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
  if (!value.empty() && all.find("|" + value + "|") != std::string::npos) return;
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
