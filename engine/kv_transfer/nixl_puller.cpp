#include "engine/kv_transfer/nixl_puller.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace quire {
namespace {

using Clock = NixlPuller::Clock;
constexpr std::chrono::microseconds kPollEvery{500};  // while something is being read

std::string name_of(const KvSource& source) {
  return fmt::format("{} {} {}", source.address.text(), source.engine, source.tensor_ranks);
}

// What the other side expects when a request's blocks are not needed any more: its name, and how
// many readers each of its ranks has.
std::string done_notice(const KvSource& source) { return source.prefill.key + ":1"; }

}  // namespace

// One start of another server.
struct NixlPuller::Remote {
  KvSource source;  // of the request that named it first
  Clock::time_point asked{};
  std::vector<std::unique_ptr<SideChannel::Question>> questions;  // by rank, until all answered
  std::vector<std::optional<NixlPeerRank>> answers;
  std::shared_ptr<const std::vector<NixlPeerRank>> ranks;  // once greeted
  std::vector<std::string> agents;   // of the ranks, as the library knows them
  std::vector<std::string> notices;  // to be said once it is greeted
  int num_reads = 0;
  std::optional<KvLost> lost;

  bool is_ready() const { return !agents.empty() && !lost; }
};

struct NixlPuller::Job {
  KvFetch fetch;
  Clock::time_point start = Clock::now();
  Clock::time_point room_deadline = Clock::time_point::max();
  Remote* remote = nullptr;  // while it is read from
  std::optional<NixlPull> pull;
  std::shared_ptr<StagedRange> landing, range;
  std::vector<NixlRead> reads;
  bool ended = false;  // whoever asked has his answer; the library may still write
};

NixlPuller::NixlPuller(const NixlSelf& self, SideChannel& channel,
                       std::function<NixlAgent&()> agent, StagingBuffer& staging,
                       NixlPullerOptions options, std::function<void()> wake)
    : self_(self),
      channel_(channel),
      agent_(std::move(agent)),
      staging_(staging),
      options_(options),
      wake_(std::move(wake)) {}

NixlPuller::~NixlPuller() = default;

void NixlPuller::watch(RequestId request, const KvSource& source) {
  watched_[request] = {source};
  remote_of(source);
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
  if (!watched.told) tell(remote_of(watched.source), done_notice(watched.source));
}

// Asks it where it is not known yet, or has registered its memory again since.
NixlPuller::Remote& NixlPuller::remote_of(const KvSource& source) {
  auto& slot = remotes_[name_of(source)];
  const bool is_newer =
      slot != nullptr && slot->source.prefill.generation < source.prefill.generation;
  if (is_newer && slot->num_reads > 0) {
    slot->lost.emplace(KvLossReason::peer_lost, "it has registered its memory again");
  } else if (is_newer) {
    for (const std::string& agent : slot->agents) agent_().forget_remote(agent);
    slot.reset();
  }
  if (slot != nullptr) return *slot;
  slot = std::make_unique<Remote>();
  slot->source = source;
  ask(*slot);
  return *slot;
}

void NixlPuller::ask(Remote& remote) {
  remote.asked = Clock::now();
  const std::string peer = remote.source.address.text();
  if (!silent_.may_ask(peer, remote.asked)) {
    remote.lost.emplace(KvLossReason::peer_lost, "it was silent a moment ago and is left alone");
    return;
  }
  try {
    for (const KvLayerGeometry& layer : self_.geometry.layers)
      ranks_of(layer, remote.source.tensor_ranks);
    ask_rank(remote, 0);
  } catch (const KvLost& lost) {
    remote.lost.emplace(lost);
  } catch (const Failure& failure) {
    remote.lost.emplace(KvLossReason::peer_lost, failure.what());
  }
}

void NixlPuller::ask_rank(Remote& remote, int rank) {
  remote.questions.push_back(
      channel_.ask(remote.source.address, encode_metadata_request({0, rank}, self_.profile)));
  remote.answers.emplace_back();
}

void NixlPuller::take_answers(Remote& remote, Clock::time_point now) {
  if (remote.questions.empty() || remote.lost) return;
  try {
    for (std::size_t rank = 0; rank < remote.questions.size(); ++rank) {
      if (remote.answers[rank]) continue;
      if (const auto frames = remote.questions[rank]->take())
        remote.answers[rank] = read_peer_rank(self_, remote.source, *frames);
    }
    // vLLM's side channel dies of a question for a rank that there is not: the first one's blocks
    // show how many there are.
    const bool knows_first = remote.answers.size() == 1 && remote.answers.front();
    for (int rank = 1; knows_first && rank < remote.source.tensor_ranks; ++rank)
      ask_rank(remote, rank);
    if (std::ranges::all_of(remote.answers, &std::optional<NixlPeerRank>::has_value)) {
      std::vector<NixlPeerRank> ranks;
      for (auto& answer : remote.answers) ranks.push_back(std::move(*answer));
      greet(remote, std::move(ranks));
    } else if (now - remote.asked > options_.silence) {
      throw KvLost(KvLossReason::peer_lost, "no answer from its side channel", true);
    }
  } catch (const KvLost& lost) {
    lose(remote, lost, now);
  } catch (const Failure& failure) {
    lose(remote, KvLost(KvLossReason::refused, failure.what()), now);
  }
}

// The library takes names and keys of it from here on.
void NixlPuller::greet(Remote& remote, std::vector<NixlPeerRank> ranks) {
  for (const NixlPeerRank& rank : ranks) {
    const bool same =
        rank.metadata.num_blocks == ranks.front().metadata.num_blocks &&
        rank.metadata.block_size == ranks.front().metadata.block_size &&
        rank.metadata.kernel_blocks_per_block == ranks.front().metadata.kernel_blocks_per_block &&
        rank.metadata.base_addresses.size() == ranks.front().metadata.base_addresses.size();
    if (!same) throw KvLost(KvLossReason::incompatible, "the ranks of the peer differ");
  }
  remote.questions.clear();
  remote.ranks = std::make_shared<const std::vector<NixlPeerRank>>(std::move(ranks));
  for (const NixlPeerRank& rank : *remote.ranks)
    remote.agents.push_back(agent_().add_remote(rank.metadata.agent));
  silent_.answered(remote.source.address.text());
  for (const std::string& notice : std::exchange(remote.notices, {})) tell(remote, notice);
}

void NixlPuller::lose(Remote& remote, const KvLost& lost, Clock::time_point now) {
  if (lost.is_silence()) silent_.was_silent(remote.source.address.text(), remote.asked, now);
  log::warn("kv_transfer.peer_lost",
            {{"peer", remote.source.address.text()}, {"because", lost.what()}});
  remote.questions.clear();
  remote.lost.emplace(lost);
}

// Nobody waits for an answer: without it the lease ends.
void NixlPuller::tell(Remote& remote, const std::string& notice) {
  if (remote.lost) return;
  if (!remote.is_ready()) {
    remote.notices.push_back(notice);
    return;
  }
  try {
    for (const std::string& agent : remote.agents) agent_().notify(agent, notice);
  } catch (const Failure& failure) {
    lose(remote, KvLost(KvLossReason::peer_lost, failure.what()), Clock::now());
  }
}

void NixlPuller::renew_all(Clock::time_point now) {
  if (now < next_renewal_) return;
  next_renewal_ = watched_.empty() ? Clock::time_point::max() : now + options_.renew_every;
  std::unordered_map<std::string, std::string> messages;
  for (const auto& [request, watched] : watched_) {
    if (watched.told) continue;
    std::string& message = messages[name_of(watched.source)];
    message += (message.empty() ? "HB:" : ",") + watched.source.prefill.key;
    remote_of(watched.source);
  }
  for (const auto& [name, message] : messages)
    if (Remote& remote = *remotes_.at(name); remote.is_ready()) tell(remote, message);
}

NixlPuller::Clock::time_point NixlPuller::step() {
  const auto now = Clock::now();
  for (auto& [name, remote] : remotes_) take_answers(*remote, now);
  bool is_reading = false;
  auto next = Clock::time_point::max();
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const bool stays = advance(*job, now);
    is_reading = is_reading || (stays && !job->reads.empty());
    if (stays) next = std::min(next, job->room_deadline);
    job = stays ? std::next(job) : jobs_.erase(job);
  }
  renew_all(now);
  forget_lost();
  for (const auto& [name, remote] : remotes_)
    if (!remote->questions.empty()) next = std::min(next, remote->asked + options_.silence);
  next = std::min(next, next_renewal_);
  return is_reading ? std::min(next, now + kPollEvery) : next;
}

// Lost ones whose memory the library does not write to any more.
void NixlPuller::forget_lost() {
  for (auto remote = remotes_.begin(); remote != remotes_.end();) {
    const auto current = remote++;
    if (!current->second->lost || current->second->num_reads > 0) continue;
    for (const std::string& agent : current->second->agents) agent_().forget_remote(agent);
    remotes_.erase(current);
  }
}

// False: nothing is left of it.
bool NixlPuller::advance(Job& job, Clock::time_point now) {
  try {
    if (!job.reads.empty()) return poll(job, now);
    return !job.ended && begin(job, now);
  } catch (const KvLost& lost) {
    end_lost(job, lost);
  } catch (const Failure& failure) {
    end_lost(job, KvLost(KvLossReason::refused, failure.what()));
  }
  return !job.reads.empty();
}

// Waits for the other side's answer and for room, then reads.
bool NixlPuller::begin(Job& job, Clock::time_point now) {
  const KvSource& source = job.fetch.source;
  if (source.prompt_hash && *source.prompt_hash != job.fetch.prompt_hash)
    throw KvLost(KvLossReason::prompt, "it is of another prompt");
  Remote& remote = remote_of(source);
  if (remote.lost) throw KvLost(*remote.lost);
  if (!remote.is_ready()) return true;
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

void NixlPuller::post(Job& job, Remote& remote) {
  const std::string notice = done_notice(job.fetch.source);
  for (std::size_t rank = 0; rank < remote.ranks->size(); ++rank) {
    const NixlPeerRank& peer = (*remote.ranks)[rank];
    const auto copies = job.pull->copies(static_cast<int>(rank), job.landing->bytes());
    if (copies.empty()) {
      agent_().notify(remote.agents[rank], notice);
    } else {
      job.reads.push_back(
          agent_().read(remote.agents[rank], peer.memory, peer.metadata.device, copies, notice));
      if (std::exchange(job.remote, &remote) == nullptr) ++remote.num_reads;
    }
  }
  const auto watched = watched_.find(job.fetch.request);
  if (watched != watched_.end()) watched->second.told = true;
}

bool NixlPuller::poll(Job& job, Clock::time_point now) {
  bool failed = false, running = false;
  for (NixlRead& read : job.reads) {
    const NixlRead::State state = read.poll();
    failed = failed || state == NixlRead::State::failed;
    running = running || state == NixlRead::State::running;
  }
  if (running) {  // its memory is the library's until it has ended
    if (!job.ended && now - job.start > options_.read_patience)
      end_lost(job, KvLost(KvLossReason::peer_lost, "the read does not end"));
    return true;
  }
  job.reads.clear();
  --job.remote->num_reads;
  if (failed) {
    const KvLost lost(KvLossReason::peer_lost, "the read failed: the peer is gone");
    lose(*job.remote, lost, now);
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
