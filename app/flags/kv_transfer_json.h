#pragma once
// vLLM's --kv-transfer-config: {"kv_connector": "QuireConnector", "kv_role": "kv_producer",
// "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"kv_listen": …, "kv_peers":
// [ … ], "kv_lease_duration": 30, "kv_buffer_bytes": …}}. What would have no effect is refused.

#include <string_view>

#include "base/result.h"
#include "engine/config.h"

namespace quire {

// One of the two: {"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
// "kv_connector_extra_config": {"cpu_bytes_to_use": …}} is the other.
struct KvConnectorConfig {
  KvTransferConfig transfer = {};
  KvOffloadConfig offload = {};
};
Result<KvConnectorConfig> parse_kv_transfer_config(std::string_view json);

// host:port or unix:path, and no address that means "all of this machine's".
Result<std::string> parse_kv_listen(std::string_view text);
// host:port, host or unix:path.
Result<std::string> parse_kv_peer(std::string_view text);

}  // namespace quire
