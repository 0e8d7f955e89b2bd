#pragma once
// Keys and values as vLLM's MooncakeConnector moves them: whoever prefills writes into the memory
// of whoever decodes, over Mooncake's TCP transport, spoken here without its library. Others see
// numbers of blocks in buffers of the transfer, never the cache.

#include <functional>
#include <memory>

#include "engine/kv_transfer/memory/kept_prefills.h"
#include "engine/kv_transfer/mooncake/keeper.h"
#include "engine/kv_transfer/mooncake/landing.h"
#include "engine/kv_transfer/mooncake/puller.h"
#include "engine/kv_transfer/plane/data_plane.h"

namespace quire {

struct MooncakePlaneOptions {
  MooncakeSelf self;
  SocketAddress listen;  // bootstrap of who prefills, else the handshake
  PeerList peers;
  MooncakeKeeperOptions keeper;
  MooncakePullerOptions puller;
  MooncakeInboxOptions inbox;
};

// kept: null where this engine does not keep prefills; arriving: where it does not fetch. Both
// outlive the plane. wake is called on any thread when take() has something, or counts are others.
// Its port is the bootstrap server's. Throws Failure where it cannot listen.
std::unique_ptr<DataPlane> make_mooncake_plane(MooncakePlaneOptions options, KeptPrefills* kept,
                                               StagingBuffer* arriving, std::function<void()> wake);

}  // namespace quire
