#pragma once
// Other servers over NIXL: asks their side channels for metadata, checks it, hands it to the
// library, and says short messages to them. Each start of a server is one. Belongs to the plane's
// thread.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/kv_nixl/nixl_agent.h"
#include "engine/kv_nixl/side_channel.h"
#include "engine/kv_transfer/nixl_peer.h"
#include "engine/kv_transfer/silent_peers.h"

namespace quire {

// One start of another server.
struct NixlRemote {
  using Clock = std::chrono::steady_clock;

  KvSource source;  // of the request that named it first
  Clock::time_point asked{};
  std::vector<std::unique_ptr<SideChannel::Question>> questions;  // by rank, until all answered
  std::vector<std::optional<NixlPeerRank>> answers;
  std::shared_ptr<const std::vector<NixlPeerRank>> ranks;  // once greeted
  std::vector<std::string> agents;   // of the ranks, as the library knows them
  std::vector<std::string> notices;  // to be said once it is greeted
  int num_uses = 0;                  // by which the library moves bytes, or somebody waits for it
  std::optional<KvLost> lost;

  bool is_ready() const { return !agents.empty() && !lost; }
};

class NixlRemotes {
 public:
  using Clock = NixlRemote::Clock;

  // All outlive it. `agent` makes the agent when it is needed first; a server that does not answer
  // for `silence` is lost.
  NixlRemotes(const NixlSelf& self, SideChannel& channel, std::function<NixlAgent&()> agent,
              std::chrono::nanoseconds silence);
  ~NixlRemotes();

  NixlAgent& agent() const { return agent_(); }
  // Asks it where it is not known yet, or has registered its memory again since.
  NixlRemote& of(const KvSource& source);
  // Nobody waits for an answer: without it the lease ends.
  void tell(NixlRemote& remote, const std::string& notice);
  void lose(NixlRemote& remote, const KvLost& lost, Clock::time_point now);

  void take_answers(Clock::time_point now);
  // Lost ones whom nobody uses any more.
  void forget_lost();
  // When one that was asked is lost.
  Clock::time_point next() const;

 private:
  void ask(NixlRemote& remote);
  void ask_rank(NixlRemote& remote, int rank);
  void take_answers(NixlRemote& remote, Clock::time_point now);
  void greet(NixlRemote& remote, std::vector<NixlPeerRank> ranks);

  const NixlSelf& self_;
  SideChannel& channel_;
  const std::function<NixlAgent&()> agent_;
  const std::chrono::nanoseconds silence_;
  SilentPeers silent_;
  std::unordered_map<std::string, std::unique_ptr<NixlRemote>> remotes_;  // by address and engine
};

}  // namespace quire
