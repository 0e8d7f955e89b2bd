#include "app/args/foreign_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <span>
#include <utility>

#include "app/args/flag_advice.h"
#include "app/args/foreign_flag_table.h"

namespace quire {

namespace {

using Pair = std::pair<std::string_view, std::string_view>;

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
    {"--device-memory-utilization", "--gpu-memory-utilization"},
};

// Of the environment.
constexpr Pair kVariables[] = {
    {"VLLM_CPU_KVCACHE_SPACE", "--kv-cache-memory-bytes"},
    {"VLLM_BATCH_INVARIANT", "--deterministic"},
    {"VLLM_LOGGING_LEVEL", "--log-level"},
    {"VLLM_CPU_OMP_THREADS_BIND", "--cpu-threads, and taskset or numactl"},
    {"VLLM_CPU_NUM_OF_RESERVED_CPU", "--cpu-threads"},
    {"VLLM_ALLOW_LONG_MAX_MODEL_LEN", "--max-model-len, up to what the model was made for"},
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
  if (values == "*" || is_list()) return;
  std::string plain = value;
  if (plain.starts_with('{'))  // JSON, however it is spaced
    std::erase_if(plain, [](unsigned char c) { return std::isspace(c) != 0; });
  if (const auto dot = plain.find('.');
      dot != plain.npos && plain.find_first_not_of('0', dot + 1) == plain.npos)
    plain.resize(dot);  // 0.0 is 0
  const std::string all = "|" + std::string(values) + "|";
  if (!plain.empty() && all.find("|" + plain + "|") != std::string::npos) return;
  std::string list(values);
  for (auto at = list.find('|'); at != list.npos; at = list.find('|')) list.replace(at, 1, ", ");
  throw CLI::ValidationError(std::string(name), "\"" + value + "\" is not offered; there is only " +
                                                    list + std::string(advice_instead_of(name)));
}

const ForeignFlag* find_foreign_flag(std::string_view name) {
  const auto flag = std::ranges::find(kForeignFlags, name, &ForeignFlag::name);
  return flag == std::end(kForeignFlags) ? nullptr : flag;
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
