#include "tests/engine/scheduler/random_scenario.h"

#include <numeric>

namespace quire::test {
namespace {

GroupConfig group(KvKind kind, int block_size, int span = 0,
                  StateCacheMode mode = StateCacheMode::none) {
  GroupConfig config;
  config.spec.kind = kind;
  config.spec.block_size = block_size;
  (kind == KvKind::chunked_local ? config.spec.attention_chunk_size : config.spec.sliding_window) =
      span;
  config.spec.state_cache_mode = mode;
  return config;
}

}  // namespace

const std::vector<Layout>& layouts() {
  using enum KvKind;
  static const GroupConfig adaptive = group(mamba, 4, 0, StateCacheMode::adaptive);
  static const GroupConfig align = group(mamba, 4, 0, StateCacheMode::align);
  static const std::vector<Layout> all{
      {"full", {group(full, 4)}},
      {"full, no caching", {group(full, 4)}, false},
      {"mla", {group(mla, 2)}},
      {"window", {group(sliding_window, 4, 6)}},
      {"chunk", {group(chunked_local, 4, 8)}, true, true, false},
      {"full and window", {group(full, 4), group(sliding_window, 4, 7)}},
      {"window first", {group(sliding_window, 2, 5), group(full, 4)}},
      {"two windows", {group(full, 4), group(sliding_window, 4, 4), group(sliding_window, 4, 9)}},
      {"small window blocks", {group(full, 8), group(sliding_window, 2, 3)}},
      {"full and chunk", {group(full, 4), group(chunked_local, 4, 8)}, true, false, false},
      {"state none", {group(full, 4), group(mamba, 64)}, false, true, false},
      {"state all", {group(full, 4), group(mamba, 4, 0, StateCacheMode::all)}, true, true, false},
      {"state align", {group(full, 4), align}, true, true, false},
      {"state adaptive", {group(full, 4), adaptive}, true, true, false},
      {"large states",
       {group(full, 4), group(mamba, 12, 0, StateCacheMode::adaptive)},
       true,
       true,
       false},
      {"two states", {align, align, group(full, 4)}, true, false, false},
      {"states alone", {group(mamba, 4, 0, StateCacheMode::all)}, true, false, false}};
  return all;
}

int pick(std::mt19937_64& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

bool chance(std::mt19937_64& random, double probability) {
  return std::bernoulli_distribution(probability)(random);
}

Scenario draw_scenario(std::mt19937_64& random, const Layout& layout, int num_blocks) {
  Scenario s;
  s.kv.groups = layout.groups;
  s.kv.num_blocks = num_blocks;
  s.kv.max_model_len = pick(random, 4, 64);
  s.kv.enable_caching = layout.caching;
  int lcm = 1, gcd = 0;
  for (const GroupConfig& g : layout.groups) {
    lcm = std::lcm(lcm, g.spec.block_size);
    gcd = std::gcd(gcd, g.spec.block_size);
  }
  s.kv.scheduler_block_size = lcm;
  s.kv.hash_block_size = gcd;
  s.options.max_num_batched_tokens = s.kv.max_num_batched_tokens = pick(random, 8, 40);
  s.options.max_model_len = s.kv.max_model_len;
  s.options.max_num_seqs = pick(random, 1, 8);
  s.options.policy = chance(random, 0.3) ? SchedulingPolicy::priority : SchedulingPolicy::fcfs;
  s.options.chunked_prefill = chance(random, 0.8);
  s.options.long_prefill_threshold = chance(random, 0.2) ? pick(random, 4, 16) : 0;
  s.options.reserve_full_prompt = chance(random, 0.5);
  s.options.async = chance(random, 0.4);
  s.options.pipeline_depth = s.options.async && chance(random, 0.8) ? 2 : 1;
  s.options.recompute_failed_loads = true;
  if (layout.drafts && chance(random, 0.3)) {
    s.options.num_speculative_tokens = pick(random, 1, 3);
    for (GroupConfig& g : s.kv.groups) {
      if (keeps_state(g.spec.kind)) {
        g.spec.num_speculative_blocks = s.options.num_speculative_tokens;
      }
    }
    if (chance(random, 0.5)) s.options.num_lookahead_tokens = s.options.num_speculative_tokens;
    const bool may_drop = layout.groups[0].spec.kind != KvKind::chunked_local;
    s.kv.use_eagle = s.options.num_lookahead_tokens > 0 && may_drop && chance(random, 0.5);
    s.drafts.num_drafts = s.options.num_speculative_tokens;
    if (chance(random, 0.5)) s.drafts.accuracy = pick(random, 0, 10) / 10.0;
  }
  s.transfers = layout.transfers && s.drafts.num_drafts == 0 && chance(random, 0.3);
  if (s.options.chunked_prefill && chance(random, 0.3)) {
    s.options.target_step_seconds = pick(random, 1, 20);
    s.options.least_chunk = pick(random, 1, 4);
  }
  if (chance(random, 0.5)) s.kv.state_chunk = pick(random, 2, 6);
  s.arrivals_per_step = std::uniform_real_distribution<double>(0.05, 1.5)(random);
  return s;
}

Scenario draw_scenario_ahead(std::mt19937_64& random, const Layout& layout, int num_blocks) {
  Scenario s = draw_scenario(random, layout, num_blocks);
  s.transfers = false;
  s.drafts = {.num_drafts = pick(random, 1, 5), .accuracy = pick(random, 0, 10) / 10.0};
  s.options.async = s.options.drafts_ahead = true;
  s.options.pipeline_depth = 2;
  s.options.num_speculative_tokens = 0;
  s.options.num_lookahead_tokens = s.drafts.num_drafts;
  const bool may_drop = layout.groups[0].spec.kind != KvKind::chunked_local;
  s.kv.use_eagle = may_drop && chance(random, 0.5);
  return s;
}

}  // namespace quire::test
