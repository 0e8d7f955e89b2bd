#pragma once
// The side that prefills and writes over NIXL: takes registrations of whoever decodes, waits until
// what they name is computed, and writes it into their blocks. Its methods belong to the plane's
// thread.

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine/kv_nixl/push_registration.h"
#include "engine/kv_transfer/memory/kept_prefills.h"
#include "engine/kv_transfer/nixl/push_write.h"
#include "engine/kv_transfer/nixl/remotes.h"
#include "engine/kv_transfer/peers/peer_list.h"

namespace quire {

struct NixlPushSenderOptions {
  std::string engine;  // what this start of the engine is called
  PeerList peers;      // to whom it writes
  int block_size = 16;
  // Of a registration for what nobody has begun to compute, as vLLM's push_registration_timeout.
  std::chrono::nanoseconds registration_patience = std::chrono::seconds(480);
  // Until a write of 1 MiB or a block has ended: its peer hangs.
  std::chrono::nanoseconds write_patience = std::chrono::seconds(30);
  // What was kept by that name before may be computed again: X-Request-Id is the client's.
  std::chrono::nanoseconds again_patience = std::chrono::seconds(2);
};

class NixlPushSender {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMostRegistrations = 4096;
  static constexpr std::size_t kMostRegisteredBlocks = 1 << 20;  // of all of them
  static constexpr std::size_t kAgentsShare = 4;                 // one agent's is a quarter

  // The memory in which a prefill of so many bytes is kept beside what is written from.
  static std::int64_t bytes_for(const KvGeometry& geometry, int block_size, std::int64_t prefill);

  // All but the options outlive it. Throws Failure where the memory has no room for a scratch.
  NixlPushSender(const NixlSelf& self, NixlRemotes& remotes, KeptPrefills& kept,
                 NixlPushSenderOptions options);
  ~NixlPushSender();

  std::span<std::byte> scratch() const { return scratch_->bytes(); }  // all that NIXL reads

  // `agent` says so.
  void register_push(const std::string& agent, std::string_view notice);
  void forget(const std::string& agent, const std::string& request);  // nobody waits for it
  void renew(std::string_view names);                                 // "a,b"
  void gone(const std::vector<std::string>& kept);  // no more: who registers for them is told
  std::vector<NixlPushStatus> states_of(const std::vector<std::string>& requests) const;

  bool is_waiting() const { return !pushes_.empty(); }

  // Does what can be done now. When it wants to be called again; max: when something comes.
  Clock::time_point step();
  const KvTrafficCounts& counts() const { return counts_; }

 private:
  struct Push;
  // A write to a peer that hangs: its slot is the library's until it has ended.
  struct Stalled {
    NixlTransfer transfer;
    std::span<std::byte> slot;
    NixlRemote* remote;  // counted in its uses
  };
  bool advance(Push& push, Clock::time_point now);
  bool connect(Push& push);
  void find(Push& push, Clock::time_point now);
  bool has_gone(const std::string& name) const;
  void begin(Push& push);
  bool write(Push& push, Clock::time_point now);
  void written(Push& push);
  void let_go(const std::string& kept);
  void lose(Push& push, const KvLost& lost);
  void end(Push& push, NixlPushStatus status);
  // Of one that ended here: whether it was written.
  struct Ended {
    std::string request;
    NixlPushStatus status;
  };
  bool is_known(const std::string& request) const;
  void refuse(const NixlPushRegistration& registration, KvLossReason reason,
              const std::string& agent, const std::string& because);
  bool has_place(const std::string& agent, const NixlPushRegistration& registration) const;
  static void add_ended(std::deque<Ended>& list, std::string request, NixlPushStatus status);
  bool may_take_slot(const NixlRemote& remote) const;
  void check_stalled();

  static constexpr std::size_t kNumSlots = 4;  // that are written at a time
  const NixlSelf& self_;
  NixlRemotes& remotes_;
  KeptPrefills& kept_;
  const NixlPushSenderOptions options_;
  const std::shared_ptr<StagedRange> scratch_;
  std::vector<std::span<std::byte>> free_slots_;
  std::list<Push> pushes_;
  std::list<Stalled> stalled_;
  std::size_t num_blocks_ = 0;  // that are registered
  // The last ones: other ranks may register for them yet, and whoever registered may ask.
  std::deque<Ended> ended_, refused_;
  std::unordered_set<std::string> gone_;  // the last ones that were kept
  std::deque<std::string> gone_in_order_;
  KvTrafficCounts counts_;
};

}  // namespace quire
