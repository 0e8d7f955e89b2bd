#include "engine/kv_transfer/nixl/push_sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "engine/kv_transfer/peers/refusals.h"

namespace quire {
namespace {

constexpr std::int64_t kUsualSlotBytes = 1 << 20;
constexpr std::int64_t kMostShare = 4;                // of the memory: no more than one in so many
constexpr std::chrono::microseconds kPollEvery{500};  // while something is written
constexpr std::chrono::milliseconds kLookAtStalled{100};
constexpr std::size_t kMostEnded = 4096;
constexpr std::size_t kMostSlotsOfPeer = 2;

std::shared_ptr<StagedRange> make_scratch(const NixlSelf& self, KeptPrefills& kept, int block_size,
                                          std::int64_t num_slots) {
  const std::int64_t least = NixlPushWrite::least_scratch_bytes(self.geometry, block_size);
  const std::int64_t usual =
      std::min(kUsualSlotBytes, kept.size_bytes() / (kMostShare * num_slots));
  auto scratch = kept.make_room_apart(num_slots * std::max(least, usual));
  if (scratch == nullptr)
    throw Failure(Error{ErrorCode::invalid_argument,
                        fmt::format("KvTransferConfig::buffer_bytes is {}; to be written over nixl "
                                    "this model needs {} beside its prefills",
                                    kept.size_bytes(), num_slots * least),
                        "KvTransferConfig::buffer_bytes"});
  return scratch;
}

Result<SocketAddress> address_of(const NixlPushRegistration& registration) {
  const bool is_v6 = registration.decode_host.find(':') != std::string::npos;
  return parse_socket_address(
      is_v6 ? fmt::format("[{}]:{}", registration.decode_host, registration.decode_port)
            : fmt::format("{}:{}", registration.decode_host, registration.decode_port));
}

}  // namespace

struct NixlPushSender::Push {
  NixlPushRegistration registration;
  std::string agent;  // who registered
  KvSource peer;
  Clock::time_point deadline;
  Clock::time_point again_until = {};  // until then what was before it counts for nothing
  NixlRemote* remote = nullptr;  // counted in its uses
  std::shared_ptr<const KeptPrefill> prefill;
  std::optional<NixlPushWrite> write;
  std::span<std::byte> slot;
  std::optional<NixlTransfer> transfer;
  Clock::time_point start;   // of what is written
  Clock::time_point posted;  // of the write under way
};

std::int64_t NixlPushSender::bytes_for(const KvGeometry& geometry, int block_size,
                                       std::int64_t prefill) {
  constexpr auto kSlots = static_cast<std::int64_t>(kNumSlots);
  const std::int64_t least = kSlots * NixlPushWrite::least_scratch_bytes(geometry, block_size);
  const std::int64_t shared = (prefill * kMostShare + kMostShare - 2) / (kMostShare - 1);
  return std::max(prefill + least, std::min(prefill + kSlots * kUsualSlotBytes, shared));
}

NixlPushSender::NixlPushSender(const NixlSelf& self, NixlRemotes& remotes, KeptPrefills& kept,
                               NixlPushSenderOptions options)
    : self_(self),
      remotes_(remotes),
      kept_(kept),
      options_(std::move(options)),
      scratch_(make_scratch(self, kept, options_.block_size, kNumSlots)) {
  const std::size_t size = scratch_->bytes().size() / kNumSlots;
  for (std::size_t i = 0; i < kNumSlots; ++i)
    free_slots_.push_back(scratch_->bytes().subspan(i * size, size));
}

NixlPushSender::~NixlPushSender() = default;

bool NixlPushSender::is_known(const std::string& request) const {
  return std::ranges::find(ended_, request, &Ended::request) != ended_.end() ||
         std::ranges::any_of(pushes_,
                             [&](const Push& p) { return p.registration.request == request; });
}

void NixlPushSender::register_push(const std::string& agent, std::string_view notice) {
  auto registration = parse_push_registration(notice);
  if (!registration) return log_refused(registration.error().detail, agent);
  if (registration->prefill_engine != options_.engine)
    return refuse(*registration, KvLossReason::expired, agent,
                  fmt::format("PUSH_REG.remote_engine_id is {}; this is {}",
                              registration->prefill_engine, options_.engine));
  if (is_known(registration->request)) return;  // another rank of the same
  const auto address = address_of(*registration);
  if (!address || !options_.peers.allows(*address))
    return refuse(
        *registration, KvLossReason::refused, agent,
        fmt::format("PUSH_REG.decode_host and decode_port are {}:{}, which is not among "
                    "those that this server may write to (KvTransferConfig::peers {})",
                    registration->decode_host, registration->decode_port, options_.peers.names()));
  if (!has_place(agent, *registration))
    return refuse(*registration, KvLossReason::no_room, agent,
                  fmt::format("more than {} registrations wait, or more than {} blocks of them, or "
                              "one in {} of these is its own",
                              kMostRegistrations, kMostRegisteredBlocks, kAgentsShare));
  num_blocks_ += registration->num_blocks();
  Push& push = pushes_.emplace_back();
  push.peer = {*address, registration->decode_engine, KvKey{registration->request, 0}};
  push.peer.tensor_ranks = registration->decode_ranks;
  push.registration = std::move(*registration);
  push.agent = agent;
  push.deadline = Clock::now() + options_.registration_patience;
  const std::string& request = push.registration.request;
  if (has_gone(request) || has_gone(std::string(base_request_name(request))))
    push.again_until = Clock::now() + options_.again_patience;
}

bool NixlPushSender::has_place(const std::string& agent,
                               const NixlPushRegistration& registration) const {
  std::size_t own = 0, own_blocks = 0;
  for (const Push& push : pushes_) {
    if (push.agent != agent || push.registration.request.empty()) continue;
    ++own;
    own_blocks += push.registration.num_blocks();
  }
  const std::size_t added = registration.num_blocks();
  return pushes_.size() < kMostRegistrations && num_blocks_ + added <= kMostRegisteredBlocks &&
         own < kMostRegistrations / kAgentsShare &&
         own_blocks + added <= kMostRegisteredBlocks / kAgentsShare;
}

bool NixlPushSender::has_gone(const std::string& name) const {
  const auto kept = kept_.find(name, 0);
  return kept ? kept->progress && kept->progress->failed : gone_.contains(name);
}

// Whoever registered finds it by asking: there may be no way to say it, or none that is allowed.
void NixlPushSender::refuse(const NixlPushRegistration& registration, KvLossReason reason,
                            const std::string& agent, const std::string& because) {
  log_refused(because, agent);
  add_ended(refused_, registration.request,
            {NixlPushState::lost, kKvLossNames[static_cast<std::size_t>(reason)]});
}

void NixlPushSender::add_ended(std::deque<Ended>& list, std::string request,
                               NixlPushStatus status) {
  list.push_back({std::move(request), std::move(status)});
  if (list.size() > kMostEnded) list.pop_front();
}

// Once through all that there is, however many are asked for. What waits counts before what has
// ended, and the latest end before others by that name.
std::vector<NixlPushStatus> NixlPushSender::states_of(
    const std::vector<std::string>& requests) const {
  std::unordered_map<std::string_view, NixlPushStatus> states;
  for (const std::string& request : requests) states.try_emplace(request);
  const auto know = [&](std::string_view request, const NixlPushStatus& status) {
    if (const auto asked = states.find(request); asked != states.end()) asked->second = status;
  };
  for (const auto* const list : {&refused_, &ended_})
    for (const Ended& one : *list) know(one.request, one.status);
  for (const Push& push : pushes_) know(push.registration.request, {NixlPushState::held});
  std::vector<NixlPushStatus> answer;
  for (const std::string& request : requests) answer.push_back(states[request]);
  return answer;
}

// What is under way ends with the notice that all of it is there.
void NixlPushSender::forget(const std::string& agent, const std::string& request) {
  for (Push& push : pushes_) {
    if (push.registration.request != request) continue;
    if (push.agent != agent) return log_refused("another's registration is to be forgotten", agent);
    if (push.slot.empty()) lose(push, KvLost(KvLossReason::refused, "nobody waits for it"));
    return;
  }
  if (is_known(request)) return;
  const std::string base(base_request_name(request));
  if (kept_.find(base, 0) != nullptr) let_go(base);
}

// Another registration by its name comes too late.
void NixlPushSender::let_go(const std::string& kept) {
  kept_.release(kept, 0);
  gone({kept});
}

void NixlPushSender::gone(const std::vector<std::string>& kept) {
  for (const std::string& key : kept) {
    if (!gone_.insert(key).second) continue;
    gone_in_order_.push_back(key);
    if (gone_in_order_.size() <= kMostEnded) continue;
    gone_.erase(gone_in_order_.front());
    gone_in_order_.pop_front();
  }
}

void NixlPushSender::renew(std::string_view names) {
  while (!names.empty()) {
    const auto comma = std::min(names.find(','), names.size());
    kept_.renew(std::string(base_request_name(names.substr(0, comma))), 0);
    names.remove_prefix(std::min(names.size(), comma + 1));
  }
}

NixlPushSender::Clock::time_point NixlPushSender::step() {
  const auto now = Clock::now();
  check_stalled();
  auto next = stalled_.empty() ? Clock::time_point::max() : now + kLookAtStalled;
  for (auto push = pushes_.begin(); push != pushes_.end();) {
    const bool stays = advance(*push, now);
    if (stays) next = std::min(next, push->transfer ? now + kPollEvery : push->deadline);
    if (stays && push->again_until > now) next = std::min(next, push->again_until);
    push = stays ? std::next(push) : pushes_.erase(push);
  }
  return next;
}

// False: nothing is left of it.
bool NixlPushSender::advance(Push& push, Clock::time_point now) {
  if (push.registration.request.empty()) return false;  // it was lost meanwhile
  try {
    const bool is_ready = connect(push);
    find(push, now);
    if (!is_ready || !push.prefill) return true;
    if (!push.write) begin(push);
    return write(push, now);
  } catch (const KvLost& lost) {
    lose(push, lost);
  } catch (const Failure& failure) {  // the library knows it no more
    const KvLost lost(KvLossReason::peer_lost, failure.what());
    if (push.write) remotes_.lose(*push.remote, lost, now);
    lose(push, lost);
  } catch (const std::exception& failure) {
    lose(push, KvLost(KvLossReason::refused, failure.what()));
  }
  return false;
}

// False: the other side has not answered yet.
bool NixlPushSender::connect(Push& push) {
  if (push.transfer) return true;  // it shows itself whether the other side is there
  if (push.remote == nullptr) {
    push.remote = &remotes_.of(push.peer);
    ++push.remote->num_uses;
  }
  if (push.remote->lost) throw KvLost(*push.remote->lost);
  if (!push.remote->is_ready()) return false;
  if (std::ranges::find(push.remote->agents, push.agent) == push.remote->agents.end())
    throw KvLost(KvLossReason::refused,
                 fmt::format("{} registered blocks of {}, which it is no agent of", push.agent,
                             push.registration.decode_engine));
  return true;
}

// Its `prefill` once all of it is computed.
void NixlPushSender::find(Push& push, Clock::time_point now) {
  if (push.prefill) return;
  const NixlPushRegistration& registration = push.registration;
  const std::string base(base_request_name(registration.request));
  auto found = kept_.find(registration.request, 0);
  if (!found) found = kept_.find(base, 0);
  const bool has_failed = found && found->progress && found->progress->failed;
  if (now < push.again_until && (!found || has_failed)) return;
  if (!found) {
    if (gone_.contains(registration.request) || gone_.contains(base))
      throw KvLost(KvLossReason::expired, "it is kept no more");
    if (now >= push.deadline) throw KvLost(KvLossReason::expired, "nobody computes it");
    return;
  }
  if (has_failed) throw KvLost(found->progress->why, "its prefill came to nothing");
  push.again_until = {};
  if (registration.prompt_hash && *registration.prompt_hash != found->prompt_hash)
    throw KvLost(KvLossReason::prompt, "it is of another prompt");
  push.deadline = now + options_.registration_patience;
  if (found->num_ready() == found->content.num_tokens) push.prefill = std::move(found);
}

void NixlPushSender::begin(Push& push) {
  push.write.emplace(self_, push.remote->ranks, push.prefill, push.registration);
}

// Part by part; with the last one of a rank comes the notice.
bool NixlPushSender::write(Push& push, Clock::time_point now) {
  if (push.slot.empty()) {
    // The end of another is polled for.
    if (free_slots_.empty() || !may_take_slot(*push.remote)) return true;
    push.slot = free_slots_.back();
    free_slots_.pop_back();
    push.start = now;
  }
  const NixlRemote& remote = *push.remote;
  while (true) {
    if (push.transfer) {
      const NixlTransfer::State state = push.transfer->poll();
      if (state == NixlTransfer::State::running && now - push.posted > options_.write_patience) {
        const KvLost lost(KvLossReason::peer_lost, "the write does not end: the peer hangs");
        stalled_.push_back({std::move(*push.transfer), std::exchange(push.slot, {}), push.remote});
        ++push.remote->num_uses;
        push.transfer.reset();
        remotes_.lose(*push.remote, lost, now);
        throw KvLost(lost);
      }
      if (state == NixlTransfer::State::running) return true;  // the slot is the library's
      if (state == NixlTransfer::State::failed) {
        const KvLost lost(KvLossReason::peer_lost, "the write failed: the peer is gone");
        remotes_.lose(*push.remote, lost, now);
        throw KvLost(lost);
      }
      push.transfer.reset();
    }
    const auto part = push.write->next(push.slot);
    if (!part) break;
    const std::string notice = part->ends_rank ? push.registration.request + ":1" : "";
    if (part->copies.empty() && !part->ends_rank)
      throw KvLost(KvLossReason::incompatible,
                   fmt::format("a block there is larger than the {} bytes that are written at a "
                               "time (KvTransferConfig::buffer_bytes)",
                               push.slot.size()));
    const NixlPeerRank& rank = (*remote.ranks)[part->rank];
    push.posted = now;
    if (part->copies.empty()) {
      if (part->ends_rank) remotes_.agent().notify(remote.agents[part->rank], notice);
    } else {
      push.transfer.emplace(remotes_.agent().write(remote.agents[part->rank], rank.memory,
                                                   rank.metadata.device, part->copies, notice));
    }
  }
  written(push);
  return false;
}

void NixlPushSender::written(Push& push) {
  ++counts_.requests;
  counts_.bytes += push.write->bytes();
  counts_.nanoseconds += std::chrono::nanoseconds(Clock::now() - push.start).count();
  let_go(push.prefill->key);
  end(push, {NixlPushState::written});
}

// Of one peer not all, for others' sake.
bool NixlPushSender::may_take_slot(const NixlRemote& remote) const {
  const auto of_it = [&](const auto& one) { return one.remote == &remote && !one.slot.empty(); };
  return static_cast<std::size_t>(std::ranges::count_if(pushes_, of_it) +
                                  std::ranges::count_if(stalled_, of_it)) < kMostSlotsOfPeer;
}

void NixlPushSender::check_stalled() {
  for (auto one = stalled_.begin(); one != stalled_.end();) {
    const auto current = one++;
    if (current->transfer.poll() == NixlTransfer::State::running) continue;
    free_slots_.push_back(current->slot);
    --current->remote->num_uses;
    stalled_.erase(current);
  }
}

void NixlPushSender::lose(Push& push, const KvLost& lost) {
  log_refused(fmt::format("{} is not written: {}", push.registration.request, lost.what()),
              push.agent);
  // A Quire server is told; vLLM's wait for their own time.
  if (push.registration.prompt_hash) {
    if (push.remote == nullptr) {
      push.remote = &remotes_.of(push.peer);
      ++push.remote->num_uses;
    }
    remotes_.tell_quire(*push.remote,
                        encode_push_lost({push.registration.request,
                                          kKvLossNames[static_cast<std::size_t>(lost.reason())]}));
  }
  end(push, {NixlPushState::lost, kKvLossNames[static_cast<std::size_t>(lost.reason())]});
}

void NixlPushSender::end(Push& push, NixlPushStatus status) {
  push.transfer.reset();
  if (!push.slot.empty()) free_slots_.push_back(push.slot);
  if (push.remote != nullptr) --push.remote->num_uses;
  push.remote = nullptr;
  push.slot = {};
  num_blocks_ -= push.registration.num_blocks();
  add_ended(ended_, std::exchange(push.registration.request, {}), std::move(status));
}

}  // namespace quire
