#include "engine/kv_transfer/nixl_push_receiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace quire {

struct NixlPushReceiver::Job {
  KvFetch fetch;
  Clock::time_point start = Clock::now();
  Clock::time_point deadline = Clock::time_point::max();  // of what it waits for now
  NixlRemote* remote = nullptr;     // while somebody waits for it; counted in its uses
  std::vector<std::string> agents;  // that it was registered with
  std::optional<NixlPushLanding> landing;
  std::optional<NixlSlots::Blocks> blocks;
  std::shared_ptr<StagedRange> range;
  std::string registered;         // under this name; empty: not yet
  std::set<std::string> written;  // by those agents
  bool ended = false;             // whoever asked has his answer; the blocks may be written yet
  bool has_sums = false;          // whoever writes is a Quire server: a late write would be seen

  bool is_written() const { return !agents.empty() && written.size() == agents.size(); }
};

NixlPushReceiver::NixlPushReceiver(const NixlSelf& self, NixlRemotes& remotes, NixlSlots& slots,
                                   StagingBuffer& staging, NixlPushReceiverOptions options,
                                   std::function<void()> wake)
    : self_(self),
      remotes_(remotes),
      slots_(slots),
      staging_(staging),
      options_(std::move(options)),
      wake_(std::move(wake)) {}

NixlPushReceiver::~NixlPushReceiver() = default;

void NixlPushReceiver::watch(RequestId request, const KvSource& source) {
  watched_[request] = {source};
  remotes_.of(source);
  if (next_renewal_ == Clock::time_point::max())
    next_renewal_ = Clock::now() + options_.renew_every;
}

void NixlPushReceiver::fetch(KvFetch fetch) { jobs_.emplace_back().fetch = std::move(fetch); }

void NixlPushReceiver::cancel(RequestId request) {
  for (Job& job : jobs_)
    if (job.fetch.request == request && !job.ended)
      end_lost(job, KvLost(KvLossReason::refused, "cancelled"));
}

// A Quire server need not keep what nobody has registered for.
void NixlPushReceiver::release(RequestId request) {
  const auto found = watched_.find(request);
  if (found == watched_.end()) return;
  const Watched watched = std::move(found->second);
  watched_.erase(found);
  NixlRemote& remote = remotes_.of(watched.source);
  if (watched.registered || !remote.is_ready() || !remote.ranks->front().metadata.quire) return;
  remotes_.tell(remote, encode_push_forgotten(watched.source.prefill.key));
}

void NixlPushReceiver::renew_all(Clock::time_point now) {
  if (now < next_renewal_) return;
  next_renewal_ =
      watched_.empty() && jobs_.empty() ? Clock::time_point::max() : now + options_.renew_every;
  std::unordered_map<NixlRemote*, std::string> messages;
  const auto add = [&](NixlRemote& remote, const std::string& name) {
    if (!remote.is_ready()) return;
    std::string& message = messages[&remote];
    message += (message.empty() ? "HB:" : ",") + name;
  };
  for (const auto& [request, watched] : watched_)
    add(remotes_.of(watched.source), watched.source.prefill.key);
  for (const Job& job : jobs_)  // that shows whether the other side is there
    if (job.ended && job.remote != nullptr && job.has_sums) add(*job.remote, job.registered);
  for (const auto& [remote, message] : messages) remotes_.tell(*remote, message);
}

NixlPushReceiver::Clock::time_point NixlPushReceiver::step() {
  const auto now = Clock::now();
  auto next = Clock::time_point::max();
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const bool stays = advance(*job, now);
    if (stays) next = std::min(next, job->deadline);
    job = stays ? std::next(job) : jobs_.erase(job);
  }
  renew_all(now);
  return std::min(next, next_renewal_);
}

// False: nothing is left of it.
bool NixlPushReceiver::advance(Job& job, Clock::time_point now) {
  try {
    if (!job.ended) begin(job, now);
  } catch (const KvLost& lost) {
    end_lost(job, lost);
  } catch (const Failure& failure) {
    end_lost(job, KvLost(KvLossReason::refused, failure.what()));
  }
  if (job.ended && job.blocks && job.has_sums && job.remote->lost)
    job.deadline = std::min(job.deadline, now + options_.aside_of_lost);
  if (job.ended && job.blocks && now >= job.deadline) give_back(job);
  return !job.ended || job.blocks;
}

void NixlPushReceiver::begin(Job& job, Clock::time_point now) {
  if (job.remote == nullptr) {
    job.remote = &remotes_.of(job.fetch.source);
    ++job.remote->num_uses;
  }
  if (job.remote->lost) throw KvLost(*job.remote->lost);
  if (!job.remote->is_ready()) return;
  if (!job.registered.empty()) {
    if (job.is_written()) return finish(job);
    if (now >= job.deadline) throw KvLost(KvLossReason::expired, "it was not written in time");
    return;
  }
  if (has_room(job, now)) register_blocks(job, now);
}

bool NixlPushReceiver::has_room(Job& job, Clock::time_point now) {
  if (!job.landing)
    job.landing.emplace(self_, slots_.block_size(), job.fetch.num_tokens, job.fetch.from);
  const std::int64_t bytes = job.landing->content().bytes;
  job.range = staging_.take(bytes);
  if (job.range != nullptr) job.blocks = slots_.take(job.landing->counts());
  if (job.blocks) return true;
  job.range.reset();  // two that wait must not hold a half each
  if (job.deadline == Clock::time_point::max()) job.deadline = now + options_.room_patience;
  if (job.landing->num_blocks() >= slots_.num_blocks() || bytes > staging_.size() ||
      now >= job.deadline)
    throw KvLost(
        KvLossReason::no_room,
        fmt::format("{} blocks do not fit the {} of the buffer, or {} bytes the {} of its "
                    "rest (KvTransferConfig::buffer_bytes)",
                    job.landing->num_blocks(), slots_.num_blocks() - 1, bytes, staging_.size()));
  return false;
}

void NixlPushReceiver::register_blocks(Job& job, Clock::time_point now) {
  const KvSource& source = job.fetch.source;
  const NixlMetadata& metadata = job.remote->ranks->front().metadata;
  NixlPushRegistration registration;
  registration.request = random_request_name(source.request);
  registration.decode_engine = options_.engine;
  registration.decode_host = options_.address.host;
  registration.decode_port = options_.address.port;
  registration.blocks = *job.blocks;
  registration.prefill_engine = metadata.engine;
  registration.prefill_host = source.address.host;
  registration.prefill_port = source.address.port;
  registration.prefill_ranks = source.tensor_ranks;
  if (metadata.quire) registration.prompt_hash = job.fetch.prompt_hash;
  job.registered = registration.request;
  job.agents = job.remote->agents;
  job.has_sums = metadata.quire.has_value();
  job.deadline = now + options_.prefill_patience;
  const auto watched = watched_.find(job.fetch.request);
  if (watched != watched_.end()) watched->second.registered = true;
  remotes_.tell(*job.remote, encode_push_registration(registration));
}

// Of those that it was said to.
NixlPushReceiver::Job* NixlPushReceiver::job_of(const std::string& agent,
                                                const std::string& request) {
  for (Job& job : jobs_) {
    if (request.empty() || job.registered != request) continue;
    return std::ranges::find(job.agents, agent) != job.agents.end() ? &job : nullptr;
  }
  return nullptr;
}

bool NixlPushReceiver::is_waiting() const {
  return std::ranges::any_of(jobs_, [](const Job& job) { return !job.ended; });
}

bool NixlPushReceiver::was_written(const std::string& agent, const NixlDone& done) {
  Job* const job = job_of(agent, done.request);
  if (job == nullptr) return false;
  job->written.insert(agent);
  if (job->ended && job->is_written()) give_back(*job);
  return true;
}

bool NixlPushReceiver::was_lost(const std::string& agent, const NixlPushLost& lost) {
  Job* const job = job_of(agent, lost.request);
  if (job == nullptr) return false;
  const auto reason = std::ranges::find(kKvLossNames, lost.reason);
  const auto number = static_cast<std::uint8_t>(reason - kKvLossNames.begin());
  end_lost(*job, KvLost(reason == kKvLossNames.end() ? KvLossReason::refused
                                                     : static_cast<KvLossReason>(number),
                        "the peer does not write it"));
  give_back(*job);
  return true;
}

void NixlPushReceiver::finish(Job& job) {
  if (job.remote->ranks->front().metadata.quire)
    job.landing->check_sums(slots_, *job.blocks, job.registered);
  job.landing->fill(slots_, *job.blocks, job.range->bytes());
  give_back(job);
  KvFetched result;
  result.content = job.landing->content();
  result.range = std::move(job.range);
  ++counts_.requests;
  counts_.bytes += result.content.bytes;
  counts_.nanoseconds += std::chrono::nanoseconds(Clock::now() - job.start).count();
  end(job, std::move(result));
}

// Nobody writes into them any more.
void NixlPushReceiver::give_back(Job& job) {
  if (job.blocks) slots_.give_back(*job.blocks);
  job.blocks.reset();
  if (job.ended) leave(job);
}

void NixlPushReceiver::end_lost(Job& job, const KvLost& lost) {
  if (job.ended) return;
  if (job.registered.empty() || job.is_written()) {
    give_back(job);
  } else {
    job.deadline = Clock::now() + options_.aside;
    if (job.has_sums && job.remote->is_ready())
      remotes_.tell(*job.remote, encode_push_forgotten(job.registered));
  }
  job.range.reset();
  KvFetched result;
  result.loss = lost.reason();
  result.detail = lost.what();
  end(job, std::move(result));
}

void NixlPushReceiver::end(Job& job, KvFetched result) {
  job.ended = true;
  if (!job.blocks) leave(job);
  result.request = job.fetch.request;
  {
    const std::lock_guard lock(mutex_);
    fetched_.push_back(std::move(result));
  }
  wake_();
}

void NixlPushReceiver::leave(Job& job) {
  if (job.remote != nullptr) --std::exchange(job.remote, nullptr)->num_uses;
}

std::vector<KvFetched> NixlPushReceiver::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(fetched_, {});
}

}  // namespace quire
