#pragma once
// Keys and values over NIXL, as vLLM's connector moves them: one-sided reads out of memory that the
// owner has registered, a side channel that says where it is, and short messages for leases. Only
// buffers of the transfer are registered, never the cache.

#include <functional>
#include <memory>

#include "engine/kv_transfer/nixl/exports.h"
#include "engine/kv_transfer/nixl/puller.h"
#include "engine/kv_transfer/nixl/thread.h"

namespace quire {

struct NixlPlaneOptions {
  NixlThreadOptions thread;  // listens where this engine keeps prefills
  NixlPullerOptions puller;
};

// exports: null where this engine does not keep prefills; arriving: where it does not fetch. Both
// outlive the plane. For what else see NixlThread.
std::unique_ptr<DataPlane> make_nixl_plane(NixlPlaneOptions options, NixlExports* exports,
                                           StagingBuffer* arriving, std::function<void()> wake);

}  // namespace quire
