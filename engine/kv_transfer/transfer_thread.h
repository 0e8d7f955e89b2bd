#pragma once
// The thread on which keys and values travel: the peers that ask this engine, and those that it
// asks. Asleep while nothing travels. All methods are for the engine's thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/kv_transfer/kept_prefills.h"
#include "engine/kv_transfer/receiver.h"
#include "engine/kv_transfer/sender.h"

namespace quire {

struct TransferThreadOptions {
  std::optional<SocketAddress> listen;  // who keeps prefills
  KvSenderOptions sender;
  KvReceiverOptions receiver;
};

class TransferThread {
 public:
  // kept: null where this engine does not keep prefills; arriving: where it does not fetch. Both
  // outlive the thread. wake is called on any thread when take() has something, or sent() or kept
  // are others. Throws Failure where it cannot listen.
  TransferThread(TransferThreadOptions options, KeptPrefills* kept, StagingBuffer* arriving,
                 std::function<void()> wake);
  ~TransferThread();
  TransferThread(const TransferThread&) = delete;
  TransferThread& operator=(const TransferThread&) = delete;

  void watch(RequestId request, KvSource source);
  void fetch(KvFetch fetch);
  void cancel(RequestId request);
  void release(RequestId request);
  void room_came();
  std::vector<KvFetched> take();

  std::uint16_t port() const;
  const KvTrafficCounts& sent() const;
  const KvTrafficCounts& received() const;

 private:
  struct State;
  void run();
  void post(std::function<void(KvReceiver&)> call);

  const std::shared_ptr<State> state_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace quire
