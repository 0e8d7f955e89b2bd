#pragma once
// The memory through which keys and values travel; its size is part of the engine's plan.

#include <cstdint>
#include <span>

#include "backend/device.h"
#include "engine/config.h"
#include "engine/wire/socket_address.h"
#include "model/kv_spec.h"

namespace quire {

struct TransferBuffers {
  Buffer kept;                 // finished prefills; empty: this engine keeps none
  Descriptor kept_descriptor;  // for readers on this machine; empty: over a socket only
  Buffer arriving;             // fetched ones; empty: it fetches none
};

// Memory of the host, as large as asked for, or for two prompts of longest_bytes and at most 1 GiB.
TransferBuffers make_transfer_buffers(const KvTransferConfig& config, std::int64_t longest_bytes,
                                      Device& device);

// What the longest prompt that fits the context leaves to whoever continues.
std::int64_t longest_prefill_bytes(std::span<const LayerKvSpec> layers, std::int64_t max_model_len);

}  // namespace quire
