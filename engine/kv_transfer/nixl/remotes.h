#pragma once
// Other servers over NIXL: asks their side channels for metadata, checks it, hands it to the
// library, and says short messages to them. Each start of a server is one; those that have gone, or
// that nobody has used for long, are forgotten. Belongs to the plane's thread.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/kv_nixl/nixl_agent.h"
#include "engine/kv_nixl/side_channel.h"
#include "engine/kv_transfer/nixl/peer.h"
#include "engine/kv_transfer/peers/failed_asks.h"
#include "engine/kv_transfer/peers/silent_peers.h"

namespace quire {

// One start of another server.
struct NixlRemote {
  using Clock = std::chrono::steady_clock;

  KvSource source;                                         // of the request that named it first
  Clock::time_point asked{}, used{};                       // used: named last
  std::unique_ptr<SideChannel::Question> question;         // that waits for the last of `answers`
  std::vector<std::optional<NixlPeerRank>> answers;        // by rank, until all have answered
  std::shared_ptr<const std::vector<NixlPeerRank>> ranks;  // once greeted
  std::vector<std::string> agents;  // of the ranks, as the library knows them
  struct Notice {
    std::string text;
    bool is_quire;  // nothing for vLLM's servers
  };
  std::deque<Notice> notices;  // to be said once it is greeted
  // Registrations of its memory that requests have named while it answered as it does now, and the
  // one for which it was asked again last.
  std::vector<std::uint64_t> generations;
  std::uint64_t asked_for = 0;
  std::size_t answer_hash = 0;  // of its first rank
  int num_uses = 0;            // by which the library moves bytes, or somebody waits for it
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
  // Asks it where it is not known yet.
  NixlRemote& of(const KvSource& source);
  // Whether a ready one has its memory as the request says; false: it is asked again, and until it
  // answers stays as it is. Throws KvLost: the request's own loss. Only the answer shows that
  // memory was registered again: whoever sends a request chooses the number.
  bool shows(NixlRemote& remote, const KvSource& source, Clock::time_point now);
  // Nobody waits for an answer: without it the lease ends.
  void tell(NixlRemote& remote, const std::string& notice) { say(remote, {notice, false}); }
  void tell_quire(NixlRemote& remote, const std::string& notice) { say(remote, {notice, true}); }
  void lose(NixlRemote& remote, const KvLost& lost, Clock::time_point now);

  // Of its side channel, another question than that for its metadata.
  std::unique_ptr<SideChannel::Question> ask(const NixlRemote& remote, std::string_view question) {
    return channel_.ask(remote.source.address, question);
  }

  void take_answers(Clock::time_point now);
  // Of those whom nobody uses: lost ones, those of long ago, and of very many the first.
  void forget_unused(Clock::time_point now);
  std::size_t size() const { return remotes_.size(); }
  std::chrono::nanoseconds silence() const { return silence_; }
  // When one that was asked is lost.
  Clock::time_point next() const;

 private:
  void ask(NixlRemote& remote);
  void ask_again(NixlRemote& remote, std::uint64_t generation, Clock::time_point now);
  void take_second_answer(NixlRemote& remote, Clock::time_point now);
  void start_over(NixlRemote& remote);
  void check_ranks(const NixlRemote& remote) const;
  int num_asked(const std::string& peer) const;  // questions without an answer
  bool shows_ranks(const NixlRemote& remote) const;
  void ask_rank(NixlRemote& remote, int rank);
  void take_answers(NixlRemote& remote, Clock::time_point now);
  void read_answer(NixlRemote& remote, const std::vector<std::string>& frames,
                   Clock::time_point now);
  void greet(NixlRemote& remote);
  void lose_earlier_starts(const NixlRemote& remote);
  void forget(const std::string& name);
  void forget_agents(const NixlRemote& remote);
  void say(NixlRemote& remote, NixlRemote::Notice notice);

  const NixlSelf& self_;
  SideChannel& channel_;
  const std::function<NixlAgent&()> agent_;
  const std::chrono::nanoseconds silence_;
  SilentPeers silent_;
  FailedAsks failed_asks_;
  FailedAsks again_;  // what is asked again; so often that a client's numbers are no flood
  struct Former {
    std::uint64_t generation;  // what is kept by it, or by an earlier one, is gone
    Clock::time_point until;   // by then all of that has expired
  };
  std::unordered_map<std::string, Former> former_;                        // as remotes_
  std::unordered_map<std::string, std::unique_ptr<NixlRemote>> remotes_;  // by address and engine
};

}  // namespace quire
