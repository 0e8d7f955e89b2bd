#pragma once
// Keys and values over NIXL, as vLLM's NixlPushConnector moves them: whoever decodes lends blocks
// to whoever prefills, who writes into them. Both have a side channel, since each asks the other
// for its metadata. Only buffers of the transfer are registered, never the cache.

#include <functional>
#include <memory>

#include "engine/kv_transfer/nixl/push_receiver.h"
#include "engine/kv_transfer/nixl/push_sender.h"
#include "engine/kv_transfer/nixl/thread.h"

namespace quire {

struct NixlPushPlaneOptions {
  NixlThreadOptions thread;          // always listens
  int block_size = 16;               // tokens, of both sides
  NixlPushSenderOptions sender;      // engine, block size: the plane's
  NixlPushReceiverOptions receiver;  // engine, address, silence: the plane's
};

// kept: null where this engine does not prefill; arriving: where it does not decode. Both outlive
// the plane. For what else see NixlThread.
std::unique_ptr<DataPlane> make_nixl_push_plane(NixlPushPlaneOptions options, KeptPrefills* kept,
                                                StagingBuffer* arriving,
                                                std::function<void()> wake);

}  // namespace quire
