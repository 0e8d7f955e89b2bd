#pragma once
// The memory through which keys and values travel; its size is part of the engine's plan.

#include "backend/device.h"
#include "engine/config.h"
#include "engine/kv_transfer/transfer_reach.h"
#include "engine/wire/socket_address.h"

namespace quire {

struct TransferBuffers {
  Buffer kept;                 // finished prefills; empty: this engine keeps none
  Descriptor kept_descriptor;  // for readers on this machine; empty: over a socket only
  Buffer arriving;             // fetched ones; empty: it fetches none
};

// Memory of the host.
TransferBuffers make_transfer_buffers(const KvTransferConfig& config, const TransferSizes& sizes,
                                      Device& device);

}  // namespace quire
