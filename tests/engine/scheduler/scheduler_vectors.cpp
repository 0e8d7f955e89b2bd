#include "tests/engine/scheduler/scheduler_vectors.h"

#include <chrono>

namespace quire::test {

using simdjson::dom::element;

std::string name_of_id(RequestId id) { return "r" + std::to_string(id.value); }

RequestId id_of(std::string_view name) {
  return RequestId(std::stoull(std::string(name.substr(1))));
}

KvCacheConfig kv_config(element config) {
  KvCacheConfig kv;
  kv.num_blocks = int_or(config, "num_blocks", 0);
  kv.groups = group_configs(config["groups"]);
  kv.max_model_len = int_or(config, "max_model_len", 0);
  kv.max_num_batched_tokens = int_or(config, "max_num_batched_tokens", 0);
  kv.scheduler_block_size = int_or(config, "scheduler_block_size", 0);
  kv.hash_block_size = int_or(config, "hash_block_size", 0);
  kv.enable_caching = bool_or(config, "enable_prefix_caching", true);
  const std::string method = text_or(config, "spec_method", "");
  kv.use_eagle = method == "eagle" || method == "mtp";
  for (const GroupConfig& group : kv.groups) {
    kv.record_fresh_blocks |= keeps_state(group.spec.kind);
  }
  return kv;
}

SchedulerOptions options_of(element config) {
  SchedulerOptions options;
  options.max_num_seqs = int_or(config, "max_num_seqs", 0);
  options.max_num_batched_tokens = int_or(config, "max_num_batched_tokens", 0);
  options.max_model_len = int_or(config, "max_model_len", 0);
  options.policy = text_or(config, "policy", "fcfs") == "priority" ? SchedulingPolicy::priority
                                                                   : SchedulingPolicy::fcfs;
  options.chunked_prefill = bool_or(config, "enable_chunked_prefill", true);
  options.long_prefill_threshold = int_or(config, "long_prefill_token_threshold", 0);
  options.reserve_full_prompt = bool_or(config, "scheduler_reserve_full_isl", true);
  options.num_speculative_tokens = int_or(config, "num_speculative_tokens", 0);
  if (text_or(config, "spec_method", "ngram") != "ngram") {
    options.num_lookahead_tokens = options.num_speculative_tokens;
  }
  options.async = bool_or(config, "async_scheduling", false);
  options.pipeline_depth = int_or(config, "pipeline_depth", 1);
  options.recompute_failed_loads = text_or(config, "kv_load_failure_policy", "fail") == "recompute";
  return options;
}

RequestInit init_of(element request, int arrival) {
  RequestInit init;
  init.id = id_of(request["id"]);
  for (const auto& range : int_lists(request["prompt"])) {
    for (int i = 0; i < range[1]; ++i) init.prompt.push_back(range[0] + i);
  }
  init.sampling.max_tokens = int_or(request, "max_tokens", 16);
  init.sampling.min_tokens = int_or(request, "min_tokens", 0);
  if (has(request, "stop_token_ids")) {
    init.sampling.stop_token_ids = ints(request["stop_token_ids"]);
  }
  if (has(request, "eos_token_id")) init.eos_token_ids = {int_or(request, "eos_token_id", 0)};
  init.priority = int_or(request, "priority", 0);
  init.arrival = std::chrono::steady_clock::time_point(std::chrono::seconds(arrival));
  init.cache_salt = text_or(request, "cache_salt", "");
  return init;
}

TransferScript script_of(element request) {
  TransferScript script;
  script.keep_at_end = has(request, "send_delay");
  if (!has(request, "external")) return script;
  const element external = request["external"];
  script.num_external = int_or(external, "tokens", 0);
  script.async = bool_or(external, "async", false);
  script.unknown_until = int_or(external, "unknown_until", 0);
  return script;
}

}  // namespace quire::test
