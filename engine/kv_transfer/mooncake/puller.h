#pragma once
// The side that decodes over Mooncake: asks servers that prefill to write what it lacks into a
// buffer of its own, waits until all of it is there, and tells those whose blocks it does not need.
// Its methods belong to the transfer's thread, but for take().

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/async.h"
#include "base/ids.h"
#include "base/task_group.h"
#include "engine/kv_mooncake/bootstrap.h"
#include "engine/kv_transfer/mooncake/inbox.h"
#include "engine/kv_transfer/mooncake/link.h"
#include "engine/kv_transfer/peers/failed_asks.h"
#include "engine/kv_transfer/peers/peer_list.h"
#include "engine/kv_transfer/peers/silent_peers.h"

namespace quire {

struct MooncakePullerOptions {
  std::string host;                                            // where peers write to
  std::chrono::nanoseconds silence = std::chrono::seconds(2);  // without a sign of life
  std::chrono::nanoseconds prefill_patience = std::chrono::minutes(9);
  std::chrono::nanoseconds room_patience = std::chrono::seconds(10);
};

class MooncakePuller final : public KvFetcher {
 public:
  // All outlive it. `wake` is called when take() has something.
  MooncakePuller(asio::any_io_executor executor, TaskGroup& tasks, const MooncakeSelf& self,
                 const PeerList& peers, MooncakeInbox& inbox, StagingBuffer& staging,
                 MooncakePullerOptions options, std::function<void()> wake);
  ~MooncakePuller() override;

  void watch(RequestId request, KvSource source) override;
  void fetch(KvFetch fetch) override;
  void cancel(RequestId request) override;
  void release(RequestId request) override;
  void unwatch(RequestId request) override { watched_.erase(request); }
  void room_came() override;
  std::vector<KvFetched> take() override;
  const KvTrafficCounts& received() const override { return counts_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Job;
  struct Watched {
    KvSource source;
    bool told = false;  // what was asked for is forgotten when it has been written
  };

  awaitable<void> run(std::shared_ptr<Job> job);
  awaitable<void> pull(Job& job);
  awaitable<MooncakeWorkers> workers_of(KvSource source);
  awaitable<MooncakeWorkers> ask_bootstrap(KvSource source);
  awaitable<void> take_room(Job& job);
  awaitable<std::vector<std::shared_ptr<MooncakeLink>>> ask_all(MooncakeWorkers workers,
                                                                MooncakeAsk ask);
  awaitable<void> answer_of(MooncakeLink& link, Job& job, Clock::time_point deadline);
  awaitable<void> all_has_come(Job& job);
  awaitable<void> tell(KvSource source);
  awaitable<void> tell_once(KvSource source);
  void finish(Job& job);
  void end(Job& job, KvFetched result);
  void end_lost(Job& job, const KvLost& lost);
  void was_lost(Job& job, const KvLost& lost, Clock::time_point asked);
  void is_not_written(const Job& job);

  const asio::any_io_executor executor_;
  TaskGroup& tasks_;
  const MooncakeSelf& self_;
  const PeerList& peers_;
  MooncakeInbox& inbox_;
  StagingBuffer& staging_;
  const MooncakePullerOptions options_;
  const std::function<void()> wake_;
  KvTrafficCounts counts_;
  SilentPeers silent_;
  FailedAsks failed_asks_;
  std::unordered_multiset<std::string> asked_;  // bootstrap servers that have not answered yet
  std::unordered_map<std::string, MooncakeWorkers> workers_;  // by address and engine
  std::unordered_map<RequestId, Watched> watched_;
  std::list<std::shared_ptr<Job>> jobs_;
  std::mutex mutex_;
  std::vector<KvFetched> fetched_;
};

}  // namespace quire
