#include "app/foreign_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <span>
#include <utility>

#include "app/flag_advice.h"

namespace quire {

namespace {

using Pair = std::pair<std::string_view, std::string_view>;

// Code of a checkpoint is never run, requests are logged only on demand, there is no uvicorn, no
// NCCL below one device, no compiler, no picture.
constexpr ForeignFlag kFlags[] = {
    {"--trust-remote-code", ""},
    {"--disable-log-requests", ""},
    {"--disable-log-stats", ""},
    {"--disable-uvicorn-access-log", ""},
    {"--enable-tokenizer-info-endpoint", ""},
    {"--enable-request-id-headers", ""},
    {"--disable-cascade-attn", ""},
    {"--disable-custom-all-reduce", ""},
    {"--disable-chunked-mm-input", ""},
    {"--skip-mm-profiling", ""},
    {"--language-model-only", ""},
    {"--use-tqdm-on-load", ""},
    {"--enable-flashinfer-autotune", ""},
    {"--enable-server-load-tracking", ""},
    {"--use-v2-block-manager", ""},
    {"--disable-frontend-multiprocessing", ""},
    {"--disable-async-output-proc", ""},
    {"--log-error-stack", ""},
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
    {"--uvicorn-log-level", "*"},
    {"--max-log-len", "*"},
    {"--max-seq-len-to-capture", "*"},
    {"--max-parallel-loading-workers", "*"},
    {"--limit-mm-per-prompt", "*"},
    {"--mm-processor-cache-gb", "*"},
    {"--optimization-level", "*"},
    {"-O", "*"},
    {"--compilation-config",
     "{}|0|1|2|3|{\"mode\":0}|{\"mode\":1}|{\"mode\":2}|{\"mode\":3}|{\"level\":0}|{\"level\":1}|"
     "{\"level\":2}|{\"level\":3}|{\"cudagraph_mode\":\"FULL\"}|"
     "{\"cudagraph_mode\":\"FULL_DECODE_ONLY\"}|{\"cudagraph_mode\":\"PIECEWISE\"}|"
     "{\"cudagraph_mode\":\"FULL_AND_PIECEWISE\"}"},
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
    {"-pcp", "--prefill-context-parallel-size"},
    {"-dcp", "--decode-context-parallel-size"},
    {"-dpl", "--data-parallel-size-local"},
    {"-dpb", "--data-parallel-backend"},
    {"-dpn", "--data-parallel-rank"},
    {"-dpr", "--data-parallel-start-rank"},
    {"-dpa", "--data-parallel-address"},
    {"-dpp", "--data-parallel-rpc-port"},
    {"-dph", "--data-parallel-hybrid-lb"},
    {"-dpe", "--data-parallel-external-lb"},
    {"-ep", "--enable-expert-parallel"},
    {"-asc", "--api-server-count"},
    {"-cc", "--compilation-config"},
    {"-ac", "--attention-config"},
    {"--spec-method", "--speculative-method"},
    {"--spec-model", "--speculative-model"},
    {"--spec-tokens", "--num-speculative-tokens"},
    {"-sc", "--speculative-config"},
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

}  // namespace quire
