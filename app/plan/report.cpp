#include "app/plan/report.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "app/args/flag_names.h"
#include "engine/size_text.h"

namespace quire {
namespace {

namespace json = boost::json;

std::string count(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string kind_of(const KvGroup& group) {
  return group.mixed_kinds ? "mixed" : std::string(kind_name(group.spec.kind));
}

std::string line(std::string_view name, const std::string& value) {
  return fmt::format("{:<12}{}\n", name, value);
}

std::string text_of_groups(const WorkerKvPlan& worker) {
  std::string table = fmt::format("{:<12}{:<24}{:>6}{:>8}{:>8}{:>14}{:>8}\n", "groups", "kind",
                                  "layers", "block", "kernel", "page bytes", "waste");
  for (std::size_t i = 0; i < worker.groups.size(); ++i) {
    const KvGroup& group = worker.groups[i];
    table +=
        fmt::format("{:<12}{:<24}{:>6}{:>8}{:>8}{:>14}{:>7.1f}%\n", fmt::format("  {}", i),
                    kind_of(group), group.layers.size(), group.block_size, group.kernel_block_size,
                    count(static_cast<std::int64_t>(group.page_bytes)), 100 * waste(group, worker));
  }
  return table;
}

// Of a memory that was described; one device is nothing to speak of where it holds all.
std::string text_of_devices(const PlanReport& report) {
  if (report.devices_tried > 0)
    return line("devices", fmt::format("no number up to {} of {} holds this", report.devices_tried,
                                       bytes_text(report.plan.device_bytes)));
  const int needed = report.devices_needed;
  if (needed == 0 || (needed == 1 && report.config.parallel.tensor_parallel_size == 1)) return "";
  return line("devices", fmt::format("{} of {} hold this (--tensor-parallel-size {})", needed,
                                     bytes_text(report.plan.device_bytes), needed));
}

// Of the device, then what is pinned on the host.
std::string text_of_memory(const EnginePlan& plan, int readers) {
  const auto row = [](std::string_view name, std::int64_t bytes, std::size_t pinned,
                      std::string_view remark) {
    const std::string host =
        pinned > 0 ? " + " + bytes_text(static_cast<std::int64_t>(pinned)) + " pinned" : "";
    return fmt::format("  {:<16}{:>12}{}{}\n", name, bytes_text(bytes), host, remark);
  };
  const MemoryUse total = plan.uses.total();
  const auto all = static_cast<std::int64_t>(total.device) + plan.mapped_bytes / readers;
  std::string text = line(
      "memory", fmt::format("{} of {} allowed", bytes_text(all), bytes_text(plan.allowed_bytes)));
  if (plan.mapped_bytes > 0)
    text += row("mapped_weights", plan.mapped_bytes, 0,
                readers == 1 ? " in files" : " in files, for all engines together");
  for (std::size_t i = 0; i < kNumMemoryPurposes; ++i) {
    const auto purpose = static_cast<MemoryPurpose>(i);
    const MemoryUse& use = plan.uses[purpose];
    if (use == MemoryUse{}) continue;
    text += row(name_of(purpose), static_cast<std::int64_t>(use.device), use.pinned,
                purpose == MemoryPurpose::graphs ? " at most" : "");
  }
  return text;
}

std::string text_of_limits(const PlanReport& report, const KvPlan& plan) {
  const SchedulerConfig& scheduler = report.config.scheduler;
  std::string limits =
      fmt::format("a request of more than {} tokens (HTTP 400)", count(plan.max_model_len));
  limits += scheduler.max_num_queued_reqs > 0
                ? fmt::format("; beyond {} waiting requests (HTTP 503)",
                              count(scheduler.max_num_queued_reqs))
                : fmt::format("; beyond {} running requests, since none may wait (HTTP 503)",
                              count(scheduler.max_num_seqs));
  if (scheduler.max_num_queued_tokens > 0)
    limits += fmt::format("; beyond {} waiting tokens (HTTP 503)",
                          count(scheduler.max_num_queued_tokens));
  return limits;
}

std::string text_of_states(const ModelPlan& model) {
  std::string text;
  if (model.state_padding_percent > 0)
    text +=
        line("states", fmt::format("mode {}, padded by {:.2f} % to attention's page",
                                   name_of(model.state_cache_mode), model.state_padding_percent));
  if (const auto& checkpoint = model.checkpoint)
    text +=
        line("checkpoint",
             fmt::format("{} blocks, {}; {} fit the cache, {} beside the longest request",
                         checkpoint->num_blocks, bytes_text(checkpoint->bytes),
                         count(checkpoint->num_in_pool), count(checkpoint->num_beside_request)));
  return text;
}

std::string text_of_token(const KvPlan& plan) {
  const std::int64_t bytes = bytes_per_token(plan);
  return bytes > 0 ? fmt::format(", {} bytes for each token of a long context", count(bytes)) : "";
}

// Who guesses; a draft model's layers are among those of the groups.
std::string text_of_drafts(const PlanReport& report) {
  const SpeculativeConfig& drafts = report.config.speculative;
  if (drafts.method == DraftMethod::none) return "";
  constexpr const char* kNames[] = {"", "prompt lookup", "EAGLE", "EAGLE-3", "the MTP module"};
  std::string who = kNames[static_cast<std::size_t>(drafts.method)];
  if (!drafts.model.empty()) who += " in " + drafts.model;
  if (const int layers = report.plan.num_draft_layers; layers > 0)
    who += fmt::format(", {} of the layers above", layers);
  return line("drafts", fmt::format("{} a step, by {}", drafts.num_speculative_tokens, who));
}

// What a promise about time cannot hold is measured when the server starts.
std::string text_of_pace(const SchedulerConfig& scheduler) {
  if (scheduler.target_itl_ms == 0) return "";
  return line("pace", fmt::format("{} ms from token to token at most: beside answers a step takes as "
                                  "much of prompts as it is measured to have time for",
                                  count(scheduler.target_itl_ms)));
}

std::string text_of_pooling(const PoolingConfig& pooling) {
  if (!pooling.pools()) return "";
  const std::string which = pooling.type == PoolingType::mean ? "the mean of all hidden states"
                            : pooling.type == PoolingType::cls ? "the first token's hidden state"
                                                               : "the last token's hidden state";
  const bool embeds = pooling.task == PoolingTask::embed;
  return line("pooling", fmt::format("{}: {}{}", name_of(pooling.task), which,
                                     !pooling.use_activation ? ""
                                     : embeds                ? ", of length 1"
                                                             : ", classified, sigmoid"));
}

// Of a model whose tokens all see each other in the one step that there is.
std::string text_without_cache(const PlanReport& report, const ModelPlan& model) {
  std::string text = text_of_pooling(report.pooling);
  text += line("kv cache", "none: the model keeps nothing between steps");
  text += line("longest", fmt::format("{} tokens (max_model_len), in one step",
                                      count(model.kv.max_model_len)));
  text += line("refused", text_of_limits(report, model.kv));
  for (const std::string& note : model.notes) text += line("note", with_flags(note));
  return text;
}

std::string text_of_plan(const PlanReport& report, const ModelPlan& model) {
  const KvPlan& plan = model.kv;
  if (plan.groups().empty()) return text_without_cache(report, model);
  const WorkerKvPlan& worker = plan.workers.front();
  const auto per_block = static_cast<std::int64_t>(worker.pool_bytes_per_block);
  std::string text =
      text_of_groups(worker) + text_of_drafts(report) + text_of_pace(report.config.scheduler) +
      text_of_pooling(report.pooling);
  text += line("blocks", fmt::format("{} of {}, {} allocated{}", count(plan.num_blocks),
                                     bytes_text(per_block),
                                     bytes_text(static_cast<std::int64_t>(worker.total_bytes())),
                                     plan.workers.size() > 1 ? " on each device" : ""));
  text += line(
      "", fmt::format("block size {} (scheduler {}, hash {}), cache {}", plan.block_size,
                      plan.scheduler_block_size, plan.hash_block_size, name_of(model.cache_dtype)));
  text += line("tokens", fmt::format("{} in the cache{}", count(plan.kv_cache_size_tokens),
                                     text_of_token(plan)));
  text += line("concurrency", fmt::format("{:.2f} requests of {} tokens", plan.max_concurrency,
                                          count(plan.max_model_len)));
  text +=
      line("longest", fmt::format("{} tokens (max_model_len); alone in the cache {} would fit",
                                  count(plan.max_model_len), count(plan.largest_request_tokens)));
  text += text_of_states(model);
  text += line("refused", text_of_limits(report, plan));
  for (const std::string& note : model.notes) text += line("note", with_flags(note));
  return text;
}

json::array json_of_groups(const WorkerKvPlan& worker) {
  json::array groups;
  for (const KvGroup& group : worker.groups) {
    json::array layers;
    for (const std::string& layer : group.layers) layers.emplace_back(layer);
    groups.push_back({{"kind", kind_of(group)},
                      {"layers", layers},
                      {"block_size", group.block_size},
                      {"kernel_block_size", group.kernel_block_size},
                      {"page_bytes", group.page_bytes},
                      {"waste", waste(group, worker)}});
  }
  return groups;
}

json::value json_of_checkpoint(const std::optional<StateCheckpoint>& checkpoint) {
  if (!checkpoint) return nullptr;
  return {{"num_blocks", checkpoint->num_blocks},
          {"bytes", checkpoint->bytes},
          {"num_in_pool", checkpoint->num_in_pool},
          {"num_beside_request", checkpoint->num_beside_request}};
}

json::object json_of_plan(const ModelPlan& model) {
  const KvPlan& plan = model.kv;
  const WorkerKvPlan& worker = plan.workers.front();
  json::array notes;
  for (const std::string& note : model.notes) notes.emplace_back(with_flags(note));
  return {{"num_gpu_blocks", plan.num_blocks},
          {"block_size", plan.block_size},
          {"scheduler_block_size", plan.scheduler_block_size},
          {"hash_block_size", plan.hash_block_size},
          {"max_model_len", plan.max_model_len},
          {"kv_cache_size_tokens", plan.kv_cache_size_tokens},
          {"max_concurrency", plan.max_concurrency},
          {"kv_bytes_per_token", bytes_per_token(plan)},
          {"largest_request_tokens", plan.largest_request_tokens},
          {"pool_bytes_per_block", worker.pool_bytes_per_block},
          {"allocated_bytes", worker.total_bytes()},
          {"kv_cache_dtype", name_of(model.cache_dtype)},
          {"mamba_cache_mode", name_of(model.state_cache_mode)},
          {"state_padding_percent", model.state_padding_percent},
          {"state_checkpoint", json_of_checkpoint(model.checkpoint)},
          {"groups", json_of_groups(worker)},
          {"notes", notes}};
}

json::object json_of_memory(const EnginePlan& plan) {
  json::object memory;
  for (std::size_t i = 0; i < kNumMemoryPurposes; ++i) {
    const auto purpose = static_cast<MemoryPurpose>(i);
    const MemoryUse& use = plan.uses[purpose];
    if (use == MemoryUse{}) continue;
    memory[name_of(purpose)] = {{"planned_bytes", use.device}, {"pinned_bytes", use.pinned}};
  }
  if (plan.mapped_bytes > 0)
    memory["mapped_weights"] = {{"planned_bytes", plan.mapped_bytes}, {"pinned_bytes", 0}};
  return memory;
}

}  // namespace

double waste(const KvGroup& group, const WorkerKvPlan& worker) {
  std::size_t used = 0;
  for (std::size_t i = 0; i < group.layers.size(); ++i)
    used += unpadded_page_bytes(group.spec_of(i));
  if (worker.pool_bytes_per_block == 0) return 0;
  return 1.0 - static_cast<double>(used) / static_cast<double>(worker.pool_bytes_per_block);
}

std::int64_t bytes_per_token(const KvPlan& plan) {
  const auto block = static_cast<std::int64_t>(plan.workers.front().pool_bytes_per_block);
  std::int64_t bytes = 0;
  for (const KvGroup& group : plan.groups())
    if (is_attention(group.spec.kind) && !is_windowed(group.spec))
      bytes += block / group.block_size;
  return bytes;
}

std::string plan_text(const PlanReport& report) {
  const EnginePlan& plan = report.plan;
  if (report.architecture.empty()) return line("refused", with_flags(plan.model.error().detail));
  std::string text =
      line("model", fmt::format("{} ({}, {}{}{})", report.model, report.architecture, report.dtype,
                                report.quantization.empty() ? "" : ", ", report.quantization));
  if (report.from_config_alone)
    text += line("weights", "none that are read: sizes are worked out from config.json alone");
  const std::string why =
      report.why_not_cuda.empty() ? "" : fmt::format(" ({})", report.why_not_cuda);
  const int engines = report.config.parallel.data_parallel_size;
  const bool is_cpu = report.config.device == DeviceKind::cpu;
  const int ranks = report.config.parallel.tensor_parallel_size;
  const std::string of_engine =
      engines == 1 ? "" : fmt::format(" of {} engines{}", engines, is_cpu ? "" : ", a GPU each");
  const std::string which = ranks > 1     ? fmt::format(" for each of {} ranks{}{}", ranks,
                                                        engines > 1 ? " of each" : "", of_engine)
                            : engines > 1 ? " for each" + of_engine
                                          : "";
  text += line("device",
               fmt::format("{}, {}{}{}", report.device, bytes_text(plan.device_bytes), which, why));
  // What cannot be is said before what it would take.
  if (plan.model.has_error()) text += line("refused", with_flags(plan.model.error().detail));
  if (report.cpu_threads > 0)
    text += line("threads", fmt::format("{}{}", report.cpu_threads,
                                        engines > 1 || ranks > 1 ? " each" : ""));
  text += text_of_devices(report);
  if (plan.uses.total() != MemoryUse{} || plan.mapped_bytes > 0)
    text += text_of_memory(plan, is_cpu ? engines : 1);
  if (plan.kv_cache_bytes != 0)
    text += line("kv cache", fmt::format("{} allowed", bytes_text(plan.kv_cache_bytes)));
  return plan.model.has_error() ? text : text + text_of_plan(report, *plan.model);
}

std::string plan_json(const PlanReport& report) {
  const EnginePlan& plan = report.plan;
  json::object object = {
      {"model", report.model},
      {"architecture", report.architecture},
      {"dtype", report.dtype},
      {"quantization",
       report.quantization.empty() ? json::value(nullptr) : json::value(report.quantization)},
      {"from_config_alone", report.from_config_alone},
      {"device", report.device},
      {"tensor_parallel_size", report.config.parallel.tensor_parallel_size},
      {"data_parallel_size", report.config.parallel.data_parallel_size},
      {"cpu_threads",
       report.cpu_threads > 0 ? json::value(report.cpu_threads) : json::value(nullptr)},
      {"device_bytes", plan.device_bytes},
      {"allowed_bytes", plan.allowed_bytes},
      {"devices_needed",
       report.devices_needed > 0 ? json::value(report.devices_needed) : json::value(nullptr)},
      {"memory", json_of_memory(plan)},
      {"kv_cache_bytes", plan.kv_cache_bytes},
      {"accepted", plan.model.has_value()}};
  if (report.pooling.pools())
    object["pooling"] = {{"task", name_of(report.pooling.task)},
                         {"type", name_of(report.pooling.type)},
                         {"use_activation", report.pooling.use_activation}};
  if (plan.model.has_error())
    object["error"] = {{"code", with_flags(plan.model.error().field)},
                       {"detail", with_flags(plan.model.error().detail)}};
  else
    object["plan"] = json_of_plan(*plan.model);
  return json::serialize(object) + "\n";
}

}  // namespace quire
