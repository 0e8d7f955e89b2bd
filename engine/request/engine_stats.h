#pragma once
// What an engine says of itself after each step. The scheduler fills what it knows, the engine's
// core the rest; /metrics reads it by server/metrics/metric_rows.cpp.

#include <cstdint>
#include <vector>

#include "base/fields.h"

namespace quire {

// Drafts at one place behind the token that they follow.
struct DraftPosition {
  std::int64_t accepted = 0;

  using Fields = FieldList<&DraftPosition::accepted>;
};

// State after a step, and counters since start.
struct EngineStats {
  int num_running = 0;
  int num_waiting = 0;           // for capacity
  int num_waiting_deferred = 0;  // for something else: a grammar, a transfer
  int num_blocks = 0;            // usable: without the null block
  int num_free_blocks = 0;
  double kv_cache_usage = 0;  // 0 … 1

  std::int64_t prefix_cache_queries = 0;    // tokens
  std::int64_t prefix_cache_hits = 0;       // tokens
  std::int64_t external_cache_queries = 0;  // tokens asked of the connector
  std::int64_t external_cache_hits = 0;
  std::int64_t prompt_tokens = 0;  // computed or found in the cache
  std::int64_t generation_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t steps = 0;

  std::int64_t drafts = 0;                 // rows of steps that had any
  std::int64_t draft_tokens = 0;           // proposed and verified
  std::int64_t accepted_draft_tokens = 0;  // that held

  // Of the core.
  std::vector<DraftPosition> draft_positions = {};  // empty: nobody drafts
  std::int64_t late_allocations = 0;                // on the device after start-up; none should be
  int step_tokens = 0;                              // tokens in the step that this accompanies
  int step_requests = 0;                            // rows in it

  using Fields = FieldList<
      &EngineStats::num_running, &EngineStats::num_waiting, &EngineStats::num_waiting_deferred,
      &EngineStats::num_blocks, &EngineStats::num_free_blocks, &EngineStats::kv_cache_usage,
      &EngineStats::prefix_cache_queries, &EngineStats::prefix_cache_hits,
      &EngineStats::prompt_tokens, &EngineStats::generation_tokens, &EngineStats::preemptions,
      &EngineStats::steps, &EngineStats::step_tokens, &EngineStats::step_requests,
      &EngineStats::late_allocations, &EngineStats::drafts, &EngineStats::draft_tokens,
      &EngineStats::draft_positions, &EngineStats::external_cache_queries,
      &EngineStats::external_cache_hits, &EngineStats::accepted_draft_tokens>;
};

}  // namespace quire
