#pragma once
// The side that prefills over Mooncake: says where it is asked (bootstrap), waits until what is
// asked for is computed, and writes it into the blocks of whoever decodes, whatever their size and
// whichever heads they have. Belongs to the transfer's thread.

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/async.h"
#include "base/task_group.h"
#include "engine/kv_mooncake/bootstrap.h"
#include "engine/kv_mooncake/xfer_messages.h"
#include "engine/kv_transfer/memory/kept_prefills.h"
#include "engine/kv_transfer/plane/kept_waits.h"
#include "engine/kv_transfer/mooncake/landing.h"
#include "engine/kv_transfer/mooncake/link.h"
#include "engine/kv_transfer/mooncake/writer.h"
#include "engine/kv_transfer/peers/peer_list.h"
#include "engine/kv_transfer/peers/visitors.h"

namespace quire {

struct MooncakeKeeperOptions {
  std::string engine;  // what this start of the engine is called
  int data_parallel_rank = 0;
  std::chrono::nanoseconds silence = std::chrono::seconds(10);
  std::chrono::nanoseconds wait_for_prefill = std::chrono::minutes(8);
  std::size_t max_connections = 1024;  // each waits for one prefill
  std::function<void()> changed = [] {};  // counts or kept prefills are others
};

class MooncakeKeeper {
 public:
  // Listens at once; throws Failure where it cannot.
  MooncakeKeeper(asio::any_io_executor executor, TaskGroup& tasks, const SocketAddress& address,
                 const MooncakeSelf& self, const PeerList& peers, MooncakeKeeperOptions options,
                 KeptPrefills& kept);
  ~MooncakeKeeper();

  std::uint16_t port() const { return port_of(bootstrap_); }
  const KvTrafficCounts& counts() const { return counts_; }

  // All run until they are cancelled.
  awaitable<void> accept_queries();
  awaitable<void> accept_asks();
  awaitable<void> expire();

 private:
  struct Peer;
  struct Asked;
  awaitable<void> accept(const Descriptor& listener, bool is_query);
  awaitable<void> answer_query(Descriptor socket);
  awaitable<void> answer_asks(Descriptor socket);
  awaitable<void> begin(std::shared_ptr<Peer> peer, std::string message);
  void check(const Peer& peer, MooncakeAsk& ask) const;
  awaitable<void> answer_one(std::shared_ptr<Asked> asked, std::size_t which);
  awaitable<std::shared_ptr<const KeptPrefill>> kept(std::shared_ptr<Peer> peer,
                                                     std::string transfer);
  awaitable<MooncakeSum> write(Asked& asked, const MooncakeWanted& wanted);
  void was_written(const Asked& asked, const std::string& transfer);

  const asio::any_io_executor executor_;
  TaskGroup& tasks_;
  const MooncakeSelf& self_;
  const PeerList& peers_;
  const MooncakeKeeperOptions options_;
  KeptPrefills& kept_;
  Descriptor bootstrap_, asks_;
  std::string workers_;  // what /query says
  Visitors visitors_;
  std::size_t num_pending_ = 0, num_blocks_ = 0;
  std::map<std::string, std::set<int>> written_;  // by transfer, the ranks that have theirs
  KvTrafficCounts counts_;
  std::deque<std::string> released_;  // lately, so that nobody waits for them again
  const std::shared_ptr<KeptWaits> waits_;
};

}  // namespace quire
