#pragma once
// What an engine says of itself after each step. The scheduler fills what it knows, the engine's
// core the rest; /metrics reads it by server/metrics/metric_rows.cpp.

#include <cstdint>
#include <vector>

#include "base/fields.h"
#include "engine/request/kv_loss.h"

namespace quire {

// Drafts at one distance from the token that they follow.
struct DraftPosition {
  std::int64_t accepted = 0;

  using Fields = FieldList<&DraftPosition::accepted>;
};

// Requests in steps that were given so many drafts; the place in the list is the number.
struct DraftChoice {
  std::int64_t rows = 0;

  using Fields = FieldList<&DraftChoice::rows>;
};

// Requests whose keys and values had to be computed after all, for one of kKvLossNames.
struct KvLoss {
  std::int64_t requests = 0;

  using Fields = FieldList<&KvLoss::requests>;
};

// Keys and values that went from engine to engine, since start.
struct KvTransferStats {
  std::int64_t sent = 0;  // requests, to the last byte
  std::int64_t sent_bytes = 0;
  double sent_seconds = 0;
  std::int64_t received = 0;  // requests, checked to the last byte
  std::int64_t received_bytes = 0;
  double received_seconds = 0;
  std::int64_t kept = 0;        // finished prefills that could be fetched
  std::int64_t expired = 0;     // of them, those that nobody fetched in time
  std::int64_t not_kept = 0;    // finished prefills for which the buffer had no room
  std::int64_t kept_bytes = 0;  // of the buffers, now
  std::int64_t arriving_bytes = 0;
  std::vector<KvLoss> losses = {};  // by KvLossReason; empty: this engine does not fetch

  using Fields = FieldList<&KvTransferStats::sent, &KvTransferStats::sent_bytes,
                           &KvTransferStats::sent_seconds, &KvTransferStats::received,
                           &KvTransferStats::received_bytes, &KvTransferStats::received_seconds,
                           &KvTransferStats::kept, &KvTransferStats::expired,
                           &KvTransferStats::not_kept, &KvTransferStats::kept_bytes,
                           &KvTransferStats::arriving_bytes, &KvTransferStats::losses>;
};

// Blocks behind the cache, since start.
struct KvOffloadStats {
  std::int64_t host_bytes = 0;  // in use, now
  std::int64_t disk_bytes = 0;
  std::int64_t saved_bytes = 0;  // out of the cache
  std::int64_t restored_bytes = 0;
  std::int64_t written_bytes = 0;  // to the disk
  std::int64_t read_bytes = 0;
  std::int64_t dropped = 0;  // blocks that the disk should have had and was too slow for, or full
  std::int64_t damaged = 0;  // blocks whose bytes were not those that were saved

  using Fields = FieldList<&KvOffloadStats::host_bytes, &KvOffloadStats::disk_bytes,
                           &KvOffloadStats::saved_bytes, &KvOffloadStats::restored_bytes,
                           &KvOffloadStats::written_bytes, &KvOffloadStats::read_bytes,
                           &KvOffloadStats::dropped, &KvOffloadStats::damaged>;
};

// What a bound on the time from token to token made of steps that took prompts in beside requests
// that decode.
struct PaceStats {
  std::int64_t chunk_tokens = 0;  // of prompts, in the latest
  std::int64_t whole_steps = 0;   // all that was there fitted
  std::int64_t cut_steps = 0;     // what fitted
  std::int64_t least_steps = 0;   // the least, though it did not fit
  std::int64_t late_steps = 0;    // in which somebody decoded, and which took longer than the bound

  using Fields = FieldList<&PaceStats::chunk_tokens, &PaceStats::whole_steps,
                           &PaceStats::cut_steps, &PaceStats::least_steps, &PaceStats::late_steps>;
};

// One of the processes that divide a model.
struct RankStats {
  std::int64_t memory_bytes = 0;  // of its device, allocated
  double waited_seconds = 0;  // for the others in what they do together; of a CPU's, since start

  using Fields = FieldList<&RankStats::memory_bytes, &RankStats::waited_seconds>;
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
  std::int64_t external_cache_queries = 0;  // tokens asked of the connector and of what is behind the cache
  std::int64_t external_cache_hits = 0;
  std::int64_t prompt_tokens = 0;  // computed or found in the cache
  std::int64_t generation_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t steps = 0;
  std::int64_t shared_prefix_tokens = 0;  // of the cache, given to be read once

  std::int64_t drafts = 0;                 // rows of steps that had any
  std::int64_t draft_tokens = 0;           // proposed and verified
  std::int64_t accepted_draft_tokens = 0;  // that held

  // Of the core.
  std::vector<DraftPosition> draft_positions = {};  // empty: nobody drafts
  std::vector<DraftChoice> draft_choices = {};      // empty: nobody drafts
  std::int64_t late_allocations = 0;                // on the device after start-up; none should be
  int step_tokens = 0;                              // tokens in the step that this accompanies
  int step_requests = 0;                            // rows in it
  KvTransferStats kv_transfer = {};
  KvOffloadStats kv_offload = {};
  PaceStats pace = {};  // zeros: no bound
  std::vector<RankStats> ranks = {};  // empty: the model is whole

  using Fields = FieldList<
      &EngineStats::num_running, &EngineStats::num_waiting, &EngineStats::num_waiting_deferred,
      &EngineStats::num_blocks, &EngineStats::num_free_blocks, &EngineStats::kv_cache_usage,
      &EngineStats::prefix_cache_queries, &EngineStats::prefix_cache_hits,
      &EngineStats::prompt_tokens, &EngineStats::generation_tokens, &EngineStats::preemptions,
      &EngineStats::steps, &EngineStats::step_tokens, &EngineStats::step_requests,
      &EngineStats::late_allocations, &EngineStats::drafts, &EngineStats::draft_tokens,
      &EngineStats::draft_positions, &EngineStats::external_cache_queries,
      &EngineStats::external_cache_hits, &EngineStats::accepted_draft_tokens,
      &EngineStats::kv_transfer, &EngineStats::draft_choices, &EngineStats::kv_offload,
      &EngineStats::pace, &EngineStats::ranks, &EngineStats::shared_prefix_tokens>;
};

}  // namespace quire
