#pragma once
// The side that decodes while others write over NIXL: lends blocks of a buffer of its own to
// whoever prefills, under a name of their own each time, and waits until all of it is there.
// Nothing of it touches the cache's memory. Its methods belong to the plane's thread, but for
// take().

#include <chrono>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "engine/kv_nixl/push_registration.h"
#include "engine/kv_transfer/memory/staging.h"
#include "engine/kv_transfer/nixl/push_landing.h"
#include "engine/kv_transfer/nixl/remotes.h"

namespace quire {

struct NixlPushReceiverOptions {
  std::string engine;     // what this start of the engine is called
  SocketAddress address;  // of its side channel, as others reach it
  std::chrono::nanoseconds renew_every = std::chrono::seconds(5);
  std::chrono::nanoseconds room_patience = std::chrono::seconds(10);
  std::chrono::nanoseconds prefill_patience = std::chrono::minutes(9);
  // For how long blocks are not lent again into which somebody may still write; the second is for
  // a peer that was lost, whose writes end with it or its connection.
  std::chrono::nanoseconds aside = std::chrono::minutes(30);
  std::chrono::nanoseconds aside_of_lost = std::chrono::minutes(1);
  std::chrono::nanoseconds silence = std::chrono::seconds(2);  // until an answer
};

class NixlPushReceiver final : public KvFetcher {
 public:
  using Clock = std::chrono::steady_clock;

  // All but the options outlive it. `wake` is called when take() has something.
  NixlPushReceiver(const NixlSelf& self, NixlRemotes& remotes, NixlSlots& slots,
                   StagingBuffer& staging, NixlPushReceiverOptions options,
                   std::function<void()> wake);
  ~NixlPushReceiver() override;

  void watch(RequestId request, KvSource source) override;
  void fetch(KvFetch fetch) override;
  void cancel(RequestId request) override;
  void release(RequestId request) override;
  void unwatch(RequestId request) override { watched_.erase(request); }
  void room_came() override {}  // each step looks for it

  // Take what `agent` says of a request. False: it was asked for no such request.
  bool was_written(const std::string& agent, const NixlDone& done);
  bool was_lost(const std::string& agent, const NixlPushLost& lost);

  bool is_waiting() const;  // for what others write

  // Does what can be done now. Returns when to call it again; max: when something comes.
  Clock::time_point step();

  std::vector<KvFetched> take() override;
  const KvTrafficCounts& received() const override { return counts_; }

 private:
  struct Job;
  struct Watched {
    KvSource source;
    std::string name;  // of the registration, also of one that does not come to be
    bool registered = false;
    // Its name where it is kept, if it was told; else the registration's.
    const std::string& kept_name() const;
  };
  // A question to a Quire server about its registrations; a server has one at a time.
  struct Inquiry {
    NixlRemote* remote;  // counted in its uses
    std::unique_ptr<SideChannel::Question> question;
    std::vector<std::string> names;
    Clock::time_point asked;
  };
  Job* job_of(const std::string& agent, const std::string& request);
  void renew_all(Clock::time_point now);
  void inquire(Clock::time_point now);
  Clock::time_point take_answers(Clock::time_point now);
  bool take_answer(const Inquiry& inquiry, Clock::time_point now);
  void was_told(Job& job, const NixlPushStatus& status, Clock::time_point now);
  bool advance(Job& job, Clock::time_point now);
  void begin(Job& job, Clock::time_point now);
  bool has_room(Job& job, Clock::time_point now);
  void register_blocks(Job& job, Clock::time_point now);
  void finish(Job& job);
  void end(Job& job, KvFetched result);
  void end_lost(Job& job, const KvLost& lost);
  void give_back(Job& job);
  void leave(Job& job);

  const NixlSelf& self_;
  NixlRemotes& remotes_;
  NixlSlots& slots_;
  StagingBuffer& staging_;
  const NixlPushReceiverOptions options_;
  const std::function<void()> wake_;
  KvTrafficCounts counts_;
  std::unordered_map<RequestId, Watched> watched_;
  std::list<Job> jobs_;
  std::list<Inquiry> inquiries_;
  Clock::time_point next_renewal_ = Clock::time_point::max();
  std::mutex mutex_;
  std::vector<KvFetched> fetched_;
};

}  // namespace quire
