#pragma once
// Quire's own plane: the peers that ask this engine, and those that it asks, over TCP or Unix
// sockets.

#include <functional>
#include <memory>
#include <optional>

#include "engine/kv_transfer/memory/kept_prefills.h"
#include "engine/kv_transfer/plane/data_plane.h"
#include "engine/kv_transfer/quire/receiver.h"
#include "engine/kv_transfer/quire/sender.h"

namespace quire {

struct QuirePlaneOptions {
  std::optional<SocketAddress> listen;  // who keeps prefills
  KvSenderOptions sender;
  KvReceiverOptions receiver;
};

// kept: null where this engine does not keep prefills; arriving: where it does not fetch. Both
// outlive the plane. wake is called on any thread when take() has something, or sent() or kept are
// others. Throws Failure where it cannot listen.
std::unique_ptr<DataPlane> make_quire_plane(QuirePlaneOptions options, KeptPrefills* kept,
                                            StagingBuffer* arriving, std::function<void()> wake);

}  // namespace quire
