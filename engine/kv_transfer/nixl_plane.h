#pragma once
// Keys and values over NIXL, as vLLM's connector moves them: one-sided reads out of memory that the
// owner has registered, a side channel that says where it is, and short messages for leases. Its
// thread sleeps while nothing is kept, asked or read; the library's agent is made when it is needed
// first. Only buffers of the transfer are registered, never the cache.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/kv_transfer/data_plane.h"
#include "engine/kv_transfer/nixl_exports.h"
#include "engine/kv_transfer/nixl_peer.h"
#include "engine/kv_transfer/nixl_puller.h"

namespace quire {

struct NixlPlaneOptions {
  std::string library;  // see NixlConfig
  NixlSelf self;
  std::string engine;                   // what this start of the engine is called
  std::string attention_backend;        // as vLLM servers are told
  std::optional<SocketAddress> listen;  // who keeps prefills
  NixlPullerOptions puller;
};

class NixlPlane final : public DataPlane {
 public:
  // exports: null where this engine does not keep prefills; arriving: where it does not fetch. Both
  // outlive the plane. wake is called on any thread when take() has something, or counts are
  // others. Throws Failure where there is no library, it does not work, or nobody can listen.
  NixlPlane(NixlPlaneOptions options, NixlExports* exports, StagingBuffer* arriving,
            std::function<void()> wake);
  ~NixlPlane() override;
  NixlPlane(const NixlPlane&) = delete;
  NixlPlane& operator=(const NixlPlane&) = delete;

  void watch(RequestId request, KvSource source) override;
  void fetch(KvFetch fetch) override;
  void cancel(RequestId request) override;
  void release(RequestId request) override;
  void room_came() override;
  std::vector<KvFetched> take() override;
  std::uint16_t port() const override;
  const KvTrafficCounts& sent() const override;
  const KvTrafficCounts& received() const override;

 private:
  struct State;
  void post(std::function<void(NixlPuller&)> call);

  const std::unique_ptr<State> state_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace quire
