#pragma once
// Keys and values over NIXL, as vLLM's NixlPushConnector moves them: whoever decodes lends blocks
// to whoever prefills, who writes into them. Both have a side channel, since each asks the other
// for its metadata. Its thread sleeps while nothing travels; the library's agent is made when it is
// needed first. Only buffers of the transfer are registered, never the cache.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/kv_transfer/data_plane.h"
#include "engine/kv_transfer/nixl_push_receiver.h"
#include "engine/kv_transfer/nixl_push_sender.h"

namespace quire {

struct NixlPushPlaneOptions {
  std::string library;  // see NixlConfig
  NixlSelf self;
  std::string engine;             // what this start of the engine is called
  std::string attention_backend;  // as vLLM servers are told
  SocketAddress listen;
  int block_size = 16;                                         // tokens, of both sides
  std::chrono::nanoseconds silence = std::chrono::seconds(2);  // until an answer
  NixlPushSenderOptions sender;                                // engine, block size: the plane's
  NixlPushReceiverOptions receiver;                            // engine, address: the plane's
};

class NixlPushPlane final : public DataPlane {
 public:
  // kept: null where this engine does not prefill; arriving: where it does not decode. Both outlive
  // the plane. wake is called on any thread when take() has something, or counts are others. Throws
  // Failure where there is no library, it does not work, or nobody can listen.
  NixlPushPlane(NixlPushPlaneOptions options, KeptPrefills* kept, StagingBuffer* arriving,
                std::function<void()> wake);
  ~NixlPushPlane() override;
  NixlPushPlane(const NixlPushPlane&) = delete;
  NixlPushPlane& operator=(const NixlPushPlane&) = delete;

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
  void post(std::function<void(NixlPushReceiver&)> call);

  const std::unique_ptr<State> state_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace quire
