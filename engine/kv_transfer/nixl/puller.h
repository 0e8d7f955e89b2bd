#pragma once
// The side that fetches over NIXL: asks servers for their metadata, checks it, reads into a buffer
// of its own, and gives signs of life for what waits. Nothing of it touches the cache's memory. Its
// methods belong to the plane's thread, but for take().

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "engine/kv_nixl/nixl_agent.h"
#include "engine/kv_transfer/memory/staging.h"
#include "engine/kv_transfer/nixl/pull.h"
#include "engine/kv_transfer/nixl/remotes.h"

namespace quire {

struct NixlPullerOptions {
  std::chrono::nanoseconds read_patience = std::chrono::seconds(30);
  std::chrono::nanoseconds renew_every = std::chrono::seconds(5);
  std::chrono::nanoseconds room_patience = std::chrono::seconds(10);
  std::chrono::nanoseconds answer_patience = std::chrono::seconds(10);  // of all its ranks
};

class NixlPuller final : public KvFetcher {
 public:
  using Clock = std::chrono::steady_clock;

  // All outlive it. `wake` is called when take() has something.
  NixlPuller(const NixlSelf& self, NixlRemotes& remotes, StagingBuffer& staging,
             NixlPullerOptions options, std::function<void()> wake);
  ~NixlPuller() override;

  void watch(RequestId request, KvSource source) override;
  void fetch(KvFetch fetch) override;
  void cancel(RequestId request) override;
  void release(RequestId request) override;
  void unwatch(RequestId request) override { watched_.erase(request); }
  void room_came() override {}  // each step looks for it

  // Does what can be done now. When it wants to be called again; max: when something comes.
  Clock::time_point step();

  std::vector<KvFetched> take() override;
  const KvTrafficCounts& received() const override { return counts_; }

 private:
  struct Job;
  struct Watched {
    KvSource source;
    bool told = false;  // the read says by itself when it has ended
  };

  void renew_all(Clock::time_point now);
  bool advance(Job& job, Clock::time_point now);
  bool begin(Job& job, Clock::time_point now);
  void post(Job& job, NixlRemote& remote);
  bool poll(Job& job, Clock::time_point now);
  void finish(Job& job);
  void end(Job& job, KvFetched result);
  void end_lost(Job& job, const KvLost& lost);

  const NixlSelf& self_;
  NixlRemotes& remotes_;
  StagingBuffer& staging_;
  const NixlPullerOptions options_;
  const std::function<void()> wake_;
  KvTrafficCounts counts_;
  std::unordered_map<RequestId, Watched> watched_;
  std::list<Job> jobs_;
  Clock::time_point next_renewal_ = Clock::time_point::max();
  std::mutex mutex_;
  std::vector<KvFetched> fetched_;
};

}  // namespace quire
