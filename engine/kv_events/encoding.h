#pragma once
// KV events as vLLM puts them on the wire: msgpack arrays [time, [event…], data-parallel rank],
// each event ["BlockStored", fields…] in vLLM's field order. llm-d's router reads these.

#include <span>
#include <string>
#include <vector>

#include "engine/kv_events/events.h"
#include "engine/kv_plan/plan.h"

namespace quire {

struct KvEventGroup {
  std::string kind;        // "full_attention", …
  int sliding_window = 0;  // tokens; 0: none
};

struct KvEventFormat {
  std::vector<KvEventGroup> groups;  // by group index
  int data_parallel_rank = 0;
  bool int_hashes = true;  // KvEventsConfig's
};

std::vector<KvEventGroup> event_groups(const KvPlan& plan);

// seconds since 1970.
std::string encode_kv_events(double seconds, std::span<const KvEvent> events,
                             const KvEventFormat& format);

}  // namespace quire
