#pragma once
// kv_transfer_params as vLLM's MooncakeConnector and its proxy write them: both servers are told a
// name at once, and whoever decodes also where the other's bootstrap server is.

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "engine/kv_transfer/peers/peer_list.h"
#include "engine/kv_transfer/transfer_params.h"

namespace quire {

// do_remote_decode: the name; where none is said, this server makes one (a proxy that asks one
// after the other).
Result<TransferParams> read_mooncake_keep(const Json& params);
// do_remote_prefill.
Result<TransferParams> read_mooncake_source(const Json& params, const PeerList& peers);

// For whoever goes on; vLLM's servers say null, and their proxy knows it all beforehand.
std::string mooncake_result(const KeptDescription& kept);

}  // namespace quire
