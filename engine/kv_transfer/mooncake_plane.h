#pragma once
// Keys and values as vLLM's MooncakeConnector moves them: whoever prefills writes into the memory
// of whoever decodes, over Mooncake's TCP transport, spoken here without its library. The thread
// sleeps while nothing travels. Others see numbers of blocks in buffers of the transfer, never the
// cache.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/kv_transfer/data_plane.h"
#include "engine/kv_transfer/kept_prefills.h"
#include "engine/kv_transfer/mooncake_keeper.h"
#include "engine/kv_transfer/mooncake_landing.h"
#include "engine/kv_transfer/mooncake_puller.h"

namespace quire {

struct MooncakePlaneOptions {
  MooncakeSelf self;
  SocketAddress listen;  // bootstrap of who prefills, else the handshake
  PeerList peers;
  MooncakeKeeperOptions keeper;
  MooncakePullerOptions puller;
  MooncakeInboxOptions inbox;
};

class MooncakePlane final : public DataPlane {
 public:
  // kept: null where this engine does not keep prefills; arriving: where it does not fetch. Both
  // outlive the plane. wake is called on any thread when take() has something, or counts are
  // others. Throws Failure where it cannot listen.
  MooncakePlane(MooncakePlaneOptions options, KeptPrefills* kept, StagingBuffer* arriving,
                std::function<void()> wake);
  ~MooncakePlane() override;
  MooncakePlane(const MooncakePlane&) = delete;
  MooncakePlane& operator=(const MooncakePlane&) = delete;

  void watch(RequestId request, KvSource source) override;
  void fetch(KvFetch fetch) override;
  void cancel(RequestId request) override;
  void release(RequestId request) override;
  void room_came() override;
  std::vector<KvFetched> take() override;

  std::uint16_t port() const override;  // of the bootstrap server
  const KvTrafficCounts& sent() const override;
  const KvTrafficCounts& received() const override;

 private:
  struct State;
  void run();
  void post(std::function<void(MooncakePuller&)> call);

  const std::shared_ptr<State> state_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace quire
