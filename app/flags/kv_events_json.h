#pragma once
// vLLM's --kv-events-config: {"enable_kv_cache_events": true, "publisher": "zmq", "endpoint":
// "tcp://*:5557", "replay_endpoint": …, "buffer_steps": …, "hwm": …, "topic": …}.

#include <string_view>

#include "base/result.h"
#include "engine/config.h"

namespace quire {

// Without "enable_kv_cache_events": true, or with publisher "null", there is no endpoint.
Result<KvEventsConfig> parse_kv_events_config(std::string_view json);

}  // namespace quire
