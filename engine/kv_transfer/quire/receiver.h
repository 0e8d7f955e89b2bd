#pragma once
// The side that fetches: connects to peers, compares geometries, reads into a buffer of its own and
// checks every piece. Nothing of it touches the cache's memory. Its methods belong to the
// transfer's thread, except where it says otherwise.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/async.h"
#include "base/ids.h"
#include "base/task_group.h"
#include "engine/kv_transfer/content/frames.h"
#include "engine/kv_transfer/memory/staging.h"
#include "engine/kv_transfer/peers/failed_asks.h"
#include "engine/kv_transfer/peers/silent_peers.h"
#include "engine/kv_transfer/plane/data_plane.h"
#include "engine/kv_transfer/quire/push_waits.h"
#include "engine/kv_transfer/quire/sender.h"
#include "engine/wire/socket_address.h"

namespace quire {

struct KvReceiverOptions {
  KvGeometry geometry;
  std::chrono::nanoseconds silence = std::chrono::seconds(2);  // without a byte, see FrameLink
  std::chrono::nanoseconds renew_every = std::chrono::seconds(5);
  std::chrono::nanoseconds room_patience = std::chrono::seconds(10);
  std::size_t max_fetches = 4;  // at a time from one peer
  // Over TCP a prompt's bytes are shared by so many connections, each of which has as many at
  // least.
  int max_lines = 4;
  std::int64_t line_bytes = 8 << 20;
  std::size_t max_pushed = 64;  // that have begun, at a time from one peer
  // Where a peer may say that a pushed prefill is; empty: nowhere else.
  std::function<bool(const SocketAddress&)> may_ask = {};
  std::chrono::nanoseconds push_patience = std::chrono::minutes(8);  // until all of one is there
};

class KvReceiver final : public KvFetcher {
 public:
  // `wake` is called on the transfer's thread when take() has something.
  // Its coroutines are the group's, which ends before it.
  KvReceiver(TaskGroup& tasks, StagingBuffer& staging, KvReceiverOptions options,
             std::function<void()> wake);
  ~KvReceiver() override;

  void watch(RequestId request, KvSource source) override;
  void fetch(KvFetch fetch) override;
  void cancel(RequestId request) override;
  void release(RequestId request) override;
  void unwatch(RequestId request) override { watched_.erase(request); }
  void room_came() override;
  std::vector<KvFetched> take() override;
  const KvTrafficCounts& received() const override { return counts_; }

 private:
  struct Link;
  struct Job;
  struct RoomWait;
  struct Outbox;

  void start_fetches();
  awaitable<void> run_fetch(std::shared_ptr<Job> job);
  awaitable<void> fetch_or_lose(Job& job);
  awaitable<void> try_fetch(Job& job);
  // From now on silence is that one's. Throws KvLost where it is left alone.
  void turn_to(Job& job, const std::string& peer);
  awaitable<void> fetch_at(Job& job, SocketAddress address);
  SocketAddress other_address(const Job& job, const KvElsewhere& told);
  awaitable<void> read_from(Job& job, std::shared_ptr<Link> link);
  int num_lines(const Job& job, const Link& link) const;
  awaitable<void> read_part(Job& job, std::shared_ptr<Link> link, int part, int parts);
  awaitable<void> add_lines(const Job& job, std::vector<std::shared_ptr<Link>>& lines);
  awaitable<void> ask(Job& job, Link& link, std::uint64_t stream, int part, int parts);
  void take_turn(Job& job);
  bool take_room(Job& job);
  awaitable<void> make_room(Job& job);
  // `patience`: until it says who it is.
  awaitable<std::shared_ptr<Link>> connect(const SocketAddress& address,
                                           std::chrono::nanoseconds patience);
  void keep_idle(std::shared_ptr<Link> link);
  std::shared_ptr<Link> idle_link(const SocketAddress& address);
  void end(Job& job);
  awaitable<void> renew_all();
  void tell(const KvSource& source, KvFrameType type, std::string message);
  awaitable<void> send_told(SocketAddress address);
  static bool is_of(const Link& link, const std::string& engine);
  void check_peer(const Link& link, const KvSource& source) const;

  TaskGroup& tasks_;
  StagingBuffer& staging_;
  const KvReceiverOptions options_;
  const std::function<void()> wake_;
  KvTrafficCounts counts_;
  std::unordered_map<RequestId, KvSource> watched_;
  std::unordered_map<RequestId, std::shared_ptr<Job>> jobs_;
  std::deque<std::shared_ptr<Job>> queue_;
  std::unordered_map<std::string, std::size_t> running_;  // fetches, by peer
  std::unordered_map<std::string, Outbox> outboxes_;      // of peers that are being told something
  SilentPeers silent_;
  FailedAsks failed_asks_;
  PushWaits push_waits_;
  bool renews_ = false;
  std::uint64_t last_stream_ = 0;
  std::vector<std::shared_ptr<Link>> idle_;  // the latest used last
  std::list<RoomWait*> room_waits_;
  std::mutex mutex_;
  std::vector<KvFetched> fetched_;
};

}  // namespace quire
