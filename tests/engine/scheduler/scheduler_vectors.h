#pragma once
// Reading the scheduler's conformance vectors.

#include "engine/scheduler/scheduler.h"
#include "tests/engine/kv_cache/runtime_vectors.h"
#include "tests/engine/scheduler/scripted_connector.h"

namespace quire::test {

// "r12" and 12
std::string name_of_id(RequestId id);
RequestId id_of(std::string_view name);

KvCacheConfig kv_config(simdjson::dom::element config);
SchedulerOptions options_of(simdjson::dom::element config);
RequestInit init_of(simdjson::dom::element request, int arrival);
TransferScript script_of(simdjson::dom::element request);

}  // namespace quire::test
