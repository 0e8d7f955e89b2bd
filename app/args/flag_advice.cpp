#include "app/args/flag_advice.h"

#include <algorithm>
#include <iterator>

namespace quire {
namespace {

struct Advice {
  std::string_view flag, instead;
  bool is_switch = false;
};

constexpr std::string_view kOneServer =
    "; every server stands alone: a balancer in front divides requests";
constexpr std::string_view kOtherMachines = "; engines on other machines are named with --engine";
constexpr std::string_view kOfRequests =
    "; it is sent in the request, as response_format or structured_outputs";
constexpr std::string_view kMerge = "; merge the adapter into the checkpoint";
constexpr std::string_view kNoPictures = "; models here read text alone";
constexpr std::string_view kModel = "; the model stands alone: quire serve MODEL";
constexpr std::string_view kLength = "; see --max-model-len";
constexpr std::string_view kSeqs = "; see --max-num-seqs";
constexpr std::string_view kStepTokens = "; see --max-num-batched-tokens";
constexpr std::string_view kCacheType = "; see --kv-cache-dtype";
constexpr std::string_view kRanks = "; see --tensor-parallel-size";
constexpr std::string_view kThreads = "; see --cpu-threads";
constexpr std::string_view kLayers =
    "; all layers are on one device: --device cuda or --device cpu";
constexpr std::string_view kShare = "; see --gpu-memory-utilization";
constexpr std::string_view kName = "; see --served-model-name";
constexpr std::string_view kHub = "; write org/name as MODEL: quire serve org/name";
constexpr std::string_view kAlways = "; it is always so, leave the flag out";
constexpr std::string_view kOthersCode = "; code of others is not run";
constexpr std::string_view kNoGrpc = "; requests come over HTTP";
constexpr std::string_view kLogs = "; see --log-level and --log-format";
constexpr std::string_view kHosts = "; see --host";

constexpr Advice kOfVllm[] = {
    {"--revision", "; write the model as org/name@revision"},
    {"--download-dir", "; models lie where HF_HOME or HF_HUB_CACHE says"},
    {"--hf-token", "; set HF_TOKEN"},
    {"--tokenizer", "; the tokenizer is read from the model's folder"},
    {"--root-path", "; let the proxy in front take the prefix off"},
    {"--structured-outputs-config", "; there is one grammar engine, always on"},
    {"--return-tokens-as-token-ids", "; send return_tokens_as_token_ids", true},
    {"--enable-expert-parallel", "; --tensor-parallel-size divides experts too", true},
    {"--enable-mfu-metrics", "; /metrics counts tokens and seconds, not operations", true},
    {"--cudagraph-metrics", "; graphs have no metrics", true},
    {"--profiler-config",
     "; there is no /start_profile: nsys and perf watch the process from outside"},
    {"--stream-interval", "; a stream has each token when it is drawn"},
    {"--kv-cache-metrics", "; /metrics and /debug/blocks say what the cache holds", true},
    {"--rope-scaling", "; write rope_scaling into the model's config.json"},
    {"--rope-theta", "; write rope_theta into the model's config.json"},
    {"--hf-config-path", "; config.json is read from the model's folder"},
    {"--calculate-kv-scales", "; the checkpoint's scales are used, or 1", true},
    {"--disable-sliding-window", "; --max-model-len of the window's size has that effect", true},
    {"--enable-sleep-mode", "; stop the server, and start it again when it is wanted", true},
    {"--headless", "; an engine without a front end is `quire engine`", true},
    {"--data-parallel-rank", kOneServer},
    {"--data-parallel-start-rank", kOtherMachines},
    {"--data-parallel-address", kOtherMachines},
    {"--data-parallel-rpc-port", kOtherMachines},
    {"--data-parallel-hybrid-lb", kOneServer, true},
    {"--data-parallel-external-lb", kOneServer, true},
    {"--logits-processors", "; code of others is not run; see logit_bias, min_p and bad_words"},
    {"--tool-parser-plugin", "; code of others is not run; --tool-call-parser lists what there is"},
    {"--reasoning-parser-plugin",
     "; code of others is not run; --reasoning-parser lists what there is"},
    {"--middleware", "; code of others is not run; put a proxy in front"},
    {"--enable-lora", kMerge, true},
    {"--lora-modules", kMerge},
    {"--enable-log-requests",
     "; --access-log has a line of each request, without its prompt and parameters", true},
    {"--enable-log-outputs", "; answers are not logged; --access-log has a line of each request",
     true},
    {"--enable-log-deltas", "; answers are not logged; --access-log has a line of each request",
     true},
    {"--show-hidden-metrics-for-version", "; --metrics-compat adds names that vLLM has retired"},
    {"--enable-prompt-embeds", "; prompts are text or token ids", true},
    {"--interleave-mm-strings", kNoPictures, true},
    {"--enable-mm-embeds", kNoPictures, true},
    {"--enable-dbo", "; a step is one batch", true},
    {"--disable-fastapi-docs",
     "; /docs and /openapi.json are always there: a proxy in front can refuse them", true},
    {"--aux-output-config", "; answers are tokens and their probabilities"},
    {"--cohere-format", "; prompts are what the chat template makes of messages"},
    {"--cohere-is-reasoning-model", "; see --reasoning-parser", true},
    {"--custom-histogram-buckets", "; the buckets of histograms are fixed"},
    {"--data-parallel-multi-port-external-lb", kOneServer, true},
    {"--data-parallel-supervisor-port", kOneServer},
    {"--default-mm-loras", kMerge},
    {"--device-ids", "; set CUDA_VISIBLE_DEVICES"},
    {"--diffusion-config", "; models here write one token after the other"},
    {"--ec-transfer-config", kNoPictures},
    {"--enable-elastic-ep", "; --tensor-parallel-size divides experts too, and stays", true},
    {"--enable-fault-tolerance", "; --engine-processes starts an engine again that has died", true},
    {"--enable-mamba-cache-stochastic-rounding", "; states are rounded to the nearest", true},
    {"--enable-per-request-metrics",
     "; --otlp-traces-endpoint has spans of each request, /debug/requests those that run", true},
    {"--enable-return-routed-experts", "; answers are tokens and their probabilities", true},
    {"--enable-trace-replay", "; what a model draws is not forced on it", true},
    {"--fail-on-environ-validation",
     "; the log names variables of vLLM that a flag stands for here", true},
    {"--fingerprint-value", "; system_fingerprint names version and model"},
    {"--grpc", kNoGrpc, true},
    {"--grpc-port", kNoGrpc},
    {"--io-processor-plugin", kOthersCode},
    {"--kv-cache-dtype-skip-layers", "; --kv-cache-dtype is of all layers"},
    {"--log-config-file", kLogs},
    {"--logging-config", kLogs},
    {"--long-prefill-token-threshold-adaptive", "; see --long-prefill-token-threshold", true},
    {"--max-num-active-seqs", kSeqs},
    {"--max-num-scheduled-tokens", kStepTokens},
    {"--mm-encoder-only", kNoPictures, true},
    {"--model-class-overrides", kOthersCode},
    {"--quantization-config", "; see --quantization"},
    {"--reasoning-config",
     "; a thinking budget ends a thought with the markers of --reasoning-parser, without a setting"},
    {"--reasoning-effort-map", "; send the efforts that the chat template knows"},
    {"--return-sampling-mask", "; answers are tokens and their probabilities", true},
    {"--scheduler-cls", kOthersCode},
    {"--skip-tokenizer-init", "; /inference/v1/generate takes token ids, and the tokenizer is read",
     true},
    {"--tokens-only", "; /inference/v1/generate takes token ids, beside the other paths", true},
    {"--ssl-ciphers", "; OpenSSL's own choice is offered, which openssl.cnf sets"},
    {"--tool-server", "; tools are run by clients"},
    {"--use-fp64-gumbel", "; the noise of draws has one precision", true},
    {"--watermark-config", "; answers carry no watermark"},
    {"--weight-transfer-config", "; weights are read once, when the server starts"},
    {"--worker-extension-cls", kOthersCode},
    {"--anthropic-disabled-thinking-effort",
     "; send chat_template_kwargs or reasoning_effort instead"},
    {"--fingerprint-mode", "; system_fingerprint names version and model"},
    {"--per-request-spec-decode-metrics", "; /metrics has vllm:spec_decode_*"},
    {"--sse-keep-alive-interval", "; a stream has lines of tokens alone"},
    {"--enable-ssl-refresh", "; SIGHUP has certificate and key read again", true},
};

constexpr Advice kOfLlamaServer[] = {
    {"-m", kModel},
    {"-hf", kHub},
    {"-hfr", kHub},
    {"--hf-repo", kHub},
    {"-c", kLength},
    {"--ctx-size", kLength},
    {"-ngl", kLayers},
    {"--n-gpu-layers", kLayers},
    {"--gpu-layers", kLayers},
    {"-np", kSeqs},
    {"--parallel", kSeqs},
    {"-t", kThreads},
    {"--threads", kThreads},
    {"-a", kName},
    {"--alias", kName},
    {"-b", kStepTokens},
    {"--batch-size", kStepTokens},
    {"-ub", kStepTokens},
    {"--ubatch-size", kStepTokens},
    {"-ctk", kCacheType},
    {"-ctv", kCacheType},
    {"--cache-type-k", kCacheType},
    {"--cache-type-v", kCacheType},
    {"-md", "; see --speculative-model"},
    {"--model-draft", "; see --speculative-model"},
    {"--jinja", "; chat templates are always rendered: leave the flag out"},
    {"--chat-template-file", "; see --chat-template"},
    {"-fa", kAlways},
    {"--flash-attn", kAlways},
    {"-cb", kAlways},
    {"--cont-batching", kAlways},
    {"--metrics", kAlways},
    {"--slots", "; there are no slots: --max-num-seqs requests run, see /debug/requests"},
    {"--grammar", kOfRequests},
    {"--grammar-file", kOfRequests},
    {"--json-schema", kOfRequests},
    {"-j", kOfRequests},
    {"--reasoning-format", "; see --reasoning-parser"},
    {"--ssl-key-file", "; see --ssl-keyfile"},
    {"--ssl-cert-file", "; see --ssl-certfile"},
};

constexpr Advice kOfTgi[] = {
    {"--model-id", kModel},
    {"--num-shard", kRanks},
    {"--max-total-tokens", kLength},
    {"--max-input-tokens", kLength},
    {"--max-input-length", kLength},
    {"--max-concurrent-requests", kSeqs},
    {"--max-batch-size", kSeqs},
    {"--max-batch-prefill-tokens", kStepTokens},
    {"--quantize", "; see --quantization"},
    {"--hostname", kHosts},
    {"--cuda-memory-fraction", kShare},
};

constexpr Advice kOfSglang[] = {
    {"--model-path", kModel},
    {"--tp-size", kRanks},
    {"--dp-size", "; see --data-parallel-size"},
    {"--mem-fraction-static", kShare},
    {"--context-length", kLength},
    {"--chunked-prefill-size", kStepTokens},
    {"--max-running-requests", kSeqs},
    {"--schedule-policy", "; see --scheduling-policy"},
    {"--disable-cuda-graph", "; see --enforce-eager"},
    {"--disable-radix-cache", "; see --no-enable-prefix-caching"},
    {"--cuda-graph-max-bs", "; see --max-cudagraph-capture-size"},
    {"--page-size", "; see --block-size"},
    {"--random-seed", "; see --seed"},
    {"--enable-metrics", kAlways},
    {"--grammar-backend", "; there is one grammar engine, always on"},
    {"--tokenizer-path", "; the tokenizer is read from the model's folder"},
    {"--speculative-algorithm", "; see --speculative-method"},
    {"--speculative-draft-model-path", "; see --speculative-model"},
    {"--speculative-num-draft-tokens", "; see --num-speculative-tokens"},
};

template <std::size_t N>
const Advice* find(const Advice (&table)[N], std::string_view flag) {
  const auto* found = std::ranges::find(table, flag, &Advice::flag);
  return found == std::end(table) ? nullptr : found;
}

}  // namespace

std::string_view advice_instead_of(std::string_view flag) {
  const Advice* found = find(kOfVllm, flag);
  if (found == nullptr) found = find(kOfLlamaServer, flag);
  if (found == nullptr) found = find(kOfTgi, flag);
  if (found == nullptr) found = find(kOfSglang, flag);
  return found == nullptr ? std::string_view() : found->instead;
}

bool is_switch_that_is_off(std::string_view flag) {
  const Advice* found = find(kOfVllm, flag);
  return found != nullptr && found->is_switch;
}

}  // namespace quire
