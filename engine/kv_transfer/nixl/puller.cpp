#include "engine/kv_transfer/nixl/puller.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace quire {
namespace {

using Clock = NixlPuller::Clock;
constexpr std::chrono::microseconds kPollEvery{500};  // while something is being read

// What the other side expects when a request's blocks are not needed any more: its name, and how
// many readers each of its ranks has.
std::string done_notice(const KvSource& source) { return source.prefill.key + ":1"; }

}  // namespace

struct NixlPuller::Job {
  KvFetch fetch;
  Clock::time_point start = Clock::now();
  Clock::time_point room_deadline = Clock::time_point::max();
  NixlRemote* remote = nullptr;  // while it is read from
  std::optional<NixlPull> pull;
  std::shared_ptr<StagedRange> landing, range;
  std::vector<NixlTransfer> reads;
  bool ended = false;  // whoever asked has its answer; the library may still write
};

NixlPuller::NixlPuller(const NixlSelf& self, NixlRemotes& remotes, StagingBuffer& staging,
                       NixlPullerOptions options, std::function<void()> wake)
    : self_(self),
      remotes_(remotes),
      staging_(staging),
      options_(options),
      wake_(std::move(wake)) {}

NixlPuller::~NixlPuller() = default;

void NixlPuller::watch(RequestId request, KvSource source) {
  remotes_.of(source);
  watched_[request] = {std::move(source)};
  if (next_renewal_ == Clock::time_point::max())
    next_renewal_ = Clock::now() + options_.renew_every;
}

void NixlPuller::fetch(KvFetch fetch) { jobs_.emplace_back().fetch = std::move(fetch); }

void NixlPuller::cancel(RequestId request) {
  for (Job& job : jobs_)
    if (job.fetch.request == request && !job.ended)
      end_lost(job, KvLost(KvLossReason::refused, "cancelled"));
}

void NixlPuller::release(RequestId request) {
  const auto found = watched_.find(request);
  if (found == watched_.end()) return;
  const Watched watched = std::move(found->second);
  watched_.erase(found);
  if (!watched.told) remotes_.tell(remotes_.of(watched.source), done_notice(watched.source));
}

void NixlPuller::renew_all(Clock::time_point now) {
  if (now < next_renewal_) return;
  next_renewal_ = watched_.empty() ? Clock::time_point::max() : now + options_.renew_every;
  for (const auto& [request, watched] : watched_)  // a later start takes an earlier one's place
    if (!watched.told) remotes_.of(watched.source);
  std::unordered_map<NixlRemote*, std::string> messages;
  for (const auto& [request, watched] : watched_) {
    if (watched.told) continue;
    std::string& message = messages[&remotes_.of(watched.source)];
    message += (message.empty() ? "HB:" : ",") + watched.source.prefill.key;
  }
  for (const auto& [remote, message] : messages)
    if (remote->is_ready()) remotes_.tell(*remote, message);
}

NixlPuller::Clock::time_point NixlPuller::step() {
  const auto now = Clock::now();
  bool is_reading = false;
  auto next = Clock::time_point::max();
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const bool stays = advance(*job, now);
    is_reading = is_reading || (stays && !job->reads.empty());
    if (stays) next = std::min(next, job->room_deadline);
    if (stays && !job->pull) next = std::min(next, job->start + options_.answer_patience);
    job = stays ? std::next(job) : jobs_.erase(job);
  }
  renew_all(now);
  next = std::min(next, next_renewal_);
  return is_reading ? std::min(next, now + kPollEvery) : next;
}

// False: nothing is left of it.
bool NixlPuller::advance(Job& job, Clock::time_point now) {
  try {
    if (!job.reads.empty()) return poll(job, now);
    return !job.ended && begin(job, now);
  } catch (const KvLost& lost) {
    end_lost(job, lost);
  } catch (const std::exception& failure) {  // of the library
    end_lost(job, KvLost(KvLossReason::refused, failure.what()));
  }
  return !job.reads.empty();
}

// Waits for the other side's answer and for room, then reads.
bool NixlPuller::begin(Job& job, Clock::time_point now) {
  const KvSource& source = job.fetch.source;
  if (source.prompt_hash && *source.prompt_hash != job.fetch.prompt_hash)
    throw KvLost(KvLossReason::prompt, "it is of another prompt");
  NixlRemote& remote = remotes_.of(source);
  if (remote.lost) throw KvLost(*remote.lost);
  if (!remote.is_ready() || !remotes_.shows(remote, source, now)) {
    if (now - job.start > options_.answer_patience)
      throw KvLost(KvLossReason::peer_lost,
                   "its side channel does not come to an end of answering");
    return true;
  }
  if (!job.pull) job.pull.emplace(self_, remote.ranks, job.fetch);
  const std::int64_t landing = job.pull->landing_bytes(), bytes = job.pull->content().bytes;
  if (job.landing == nullptr) job.landing = staging_.take(landing);
  if (job.landing != nullptr && job.range == nullptr) job.range = staging_.take(bytes);
  if (job.range == nullptr) {
    job.landing.reset();  // two that wait must not hold a half each
    if (job.room_deadline == Clock::time_point::max())
      job.room_deadline = now + options_.room_patience;
    if (landing + bytes > staging_.size() || now >= job.room_deadline)
      throw KvLost(KvLossReason::no_room, fmt::format("{} bytes do not fit the buffer of {} "
                                                      "(KvTransferConfig::buffer_bytes)",
                                                      landing + bytes, staging_.size()));
    return true;
  }
  job.room_deadline = Clock::time_point::max();
  post(job, remote);
  if (job.reads.empty()) finish(job);
  return !job.reads.empty();
}

void NixlPuller::post(Job& job, NixlRemote& remote) {
  const std::string notice = done_notice(job.fetch.source);
  for (std::size_t rank = 0; rank < remote.ranks->size(); ++rank) {
    const NixlPeerRank& peer = (*remote.ranks)[rank];
    const auto copies = job.pull->copies(static_cast<int>(rank), job.landing->bytes());
    if (copies.empty()) {
      remotes_.agent().notify(remote.agents[rank], notice);
    } else {
      job.reads.push_back(remotes_.agent().read(remote.agents[rank], peer.memory,
                                                peer.metadata.device, copies, notice));
      if (std::exchange(job.remote, &remote) == nullptr) ++remote.num_uses;
    }
  }
  const auto watched = watched_.find(job.fetch.request);
  if (watched != watched_.end()) watched->second.told = true;
}

bool NixlPuller::poll(Job& job, Clock::time_point now) {
  bool failed = false, running = false;
  for (NixlTransfer& read : job.reads) {
    const NixlTransfer::State state = read.poll();
    failed = failed || state == NixlTransfer::State::failed;
    running = running || state == NixlTransfer::State::running;
  }
  if (running) {  // its memory is the library's until it has ended
    if (!job.ended && now - job.start > options_.read_patience)
      end_lost(job, KvLost(KvLossReason::peer_lost, "the read does not end"));
    return true;
  }
  job.reads.clear();
  --job.remote->num_uses;
  if (failed) {
    const KvLost lost(KvLossReason::peer_lost, "the read failed: the peer is gone");
    remotes_.lose(*job.remote, lost, now);
    if (!job.ended) end_lost(job, lost);
  } else if (!job.ended) {
    finish(job);
  }
  return false;
}

void NixlPuller::finish(Job& job) {
  job.pull->finish(job.landing->bytes(), job.range->bytes());
  KvFetched result;
  result.content = job.pull->content();
  result.range = std::move(job.range);
  ++counts_.requests;
  counts_.bytes += job.pull->landing_bytes();
  counts_.nanoseconds += std::chrono::nanoseconds(Clock::now() - job.start).count();
  end(job, std::move(result));
}

void NixlPuller::end_lost(Job& job, const KvLost& lost) {
  if (job.ended) return;
  KvFetched result;
  result.loss = lost.reason();
  result.detail = lost.what();
  end(job, std::move(result));
}

void NixlPuller::end(Job& job, KvFetched result) {
  job.ended = true;
  result.request = job.fetch.request;
  {
    const std::lock_guard lock(mutex_);
    fetched_.push_back(std::move(result));
  }
  wake_();
}

std::vector<KvFetched> NixlPuller::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(fetched_, {});
}

}  // namespace quire
