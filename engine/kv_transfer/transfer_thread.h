#pragma once
// Quire's own plane: a thread with the peers that ask this engine, and those that it asks, over TCP
// or Unix sockets.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/kv_transfer/data_plane.h"
#include "engine/kv_transfer/kept_prefills.h"
#include "engine/kv_transfer/receiver.h"
#include "engine/kv_transfer/sender.h"

namespace quire {

struct TransferThreadOptions {
  std::optional<SocketAddress> listen;  // who keeps prefills
  KvSenderOptions sender;
  KvReceiverOptions receiver;
};

class TransferThread final : public DataPlane {
 public:
  // kept: null where this engine does not keep prefills; arriving: where it does not fetch. Both
  // outlive the thread. wake is called on any thread when take() has something, or sent() or kept
  // are others. Throws Failure where it cannot listen.
  TransferThread(TransferThreadOptions options, KeptPrefills* kept, StagingBuffer* arriving,
                 std::function<void()> wake);
  ~TransferThread() override;
  TransferThread(const TransferThread&) = delete;
  TransferThread& operator=(const TransferThread&) = delete;

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
  void run();
  void post(std::function<void(KvReceiver&)> call);

  const std::shared_ptr<State> state_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace quire
