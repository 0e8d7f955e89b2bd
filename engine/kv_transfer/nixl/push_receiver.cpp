#include "engine/kv_transfer/nixl/push_receiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace quire {
namespace {

// A notice comes by another way than a question: it has this long until the first one.
constexpr std::chrono::milliseconds kAskAfter{20};
constexpr int kAskAgain = 2;  // after so many times as long, while it is unknown

}  // namespace

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
  bool ended = false;             // whoever asked has its answer; the blocks may be written yet
  bool has_sums = false;          // whoever writes is a Quire server: a late write would be seen
  // Of a Quire server: when it is asked about the registration next, and since when it neither
  // holds it nor has said what became of it.
  Clock::time_point ask_at = Clock::time_point::max();
  Clock::duration ask_after = kAskAfter;
  std::optional<Clock::time_point> unheld_since = {};

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

const std::string& NixlPushReceiver::Watched::kept_name() const {
  const std::string& key = source.prefill.key;
  return base_request_name(key).size() < key.size() ? key : name;
}

void NixlPushReceiver::watch(RequestId request, KvSource source) {
  remotes_.of(source);
  std::string name = random_request_name(source.request);
  watched_[request] = {std::move(source), std::move(name)};
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
  if (watched.registered) return;
  remotes_.tell_quire(remote, encode_push_forgotten(watched.kept_name()));
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
    add(remotes_.of(watched.source), watched.kept_name());
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
  inquire(now);
  return std::min({next, next_renewal_, take_answers(now)});
}

void NixlPushReceiver::inquire(Clock::time_point now) {
  for (Job& job : jobs_) {
    if (now < job.ask_at || job.remote == nullptr || !job.remote->is_ready()) continue;
    auto found = std::ranges::find(inquiries_, job.remote, &Inquiry::remote);
    if (found == inquiries_.end()) {
      found = inquiries_.insert(inquiries_.end(), Inquiry{job.remote, nullptr, {}, now});
      ++job.remote->num_uses;
    }
    if (found->question != nullptr || found->names.size() == kMostPushNames) continue;
    found->names.push_back(job.registered);
    job.ask_at = Clock::time_point::max();
  }
  for (Inquiry& inquiry : inquiries_) {
    if (inquiry.question != nullptr) continue;
    try {
      inquiry.question = remotes_.ask(*inquiry.remote, encode_push_question(inquiry.names));
    } catch (const Failure& failure) {
      remotes_.lose(*inquiry.remote, KvLost(KvLossReason::peer_lost, failure.what()), now);
    }
  }
}

// When the first of those that wait is to be asked about, or was asked in vain.
NixlPushReceiver::Clock::time_point NixlPushReceiver::take_answers(Clock::time_point now) {
  auto next = Clock::time_point::max();
  for (auto one = inquiries_.begin(); one != inquiries_.end();) {
    if (take_answer(*one, now)) {
      --one->remote->num_uses;
      one = inquiries_.erase(one);
    } else {
      next = std::min(next, one->asked + options_.silence);
      ++one;
    }
  }
  for (const Job& job : jobs_)
    if (job.remote != nullptr && job.remote->is_ready() &&
        std::ranges::find(inquiries_, job.remote, &Inquiry::remote) == inquiries_.end())
      next = std::min(next, job.ask_at);
  return next;
}

// False: there is none yet.
bool NixlPushReceiver::take_answer(const Inquiry& inquiry, Clock::time_point now) {
  if (inquiry.remote->lost) return true;
  const auto frames = inquiry.question->take();
  if (!frames) {
    if (now < inquiry.asked + options_.silence) return false;
    remotes_.lose(
        *inquiry.remote,
        KvLost(KvLossReason::peer_lost, "its side channel does not answer any more", true), now);
    return true;
  }
  const auto states = parse_push_states(frames->empty() ? std::string() : frames->front());
  for (std::size_t i = 0; i < inquiry.names.size(); ++i) {
    const auto job = std::ranges::find(jobs_, inquiry.names[i], &Job::registered);
    const bool is_told = states && states->size() == inquiry.names.size();
    if (job != jobs_.end()) was_told(*job, is_told ? (*states)[i] : NixlPushStatus{}, now);
  }
  return true;
}

// A notice that says the same, or that all is written, may be on its way yet.
void NixlPushReceiver::was_told(Job& job, const NixlPushStatus& status, Clock::time_point now) {
  if (job.is_written()) return;
  if (status.state == NixlPushState::lost) {
    was_lost(job.agents.front(), {job.registered, status.reason});
    return;
  }
  if (status.state == NixlPushState::held) {
    job.unheld_since.reset();
    job.ask_after = options_.renew_every;
  } else {
    if (!job.unheld_since) {
      job.unheld_since = now;
      job.ask_after = kAskAfter;
    }
    job.ask_after = std::min<Clock::duration>(job.ask_after * kAskAgain, options_.renew_every);
    if (now - *job.unheld_since >= options_.silence) {
      end_lost(job, KvLost(KvLossReason::peer_lost, "the peer does not know of it"));
      if (status.state == NixlPushState::written) return give_back(job);
      job.deadline = std::min(job.deadline, now + options_.aside_of_lost);
    }
  }
  job.ask_at = now + job.ask_after;
}

// False: nothing is left of it.
bool NixlPushReceiver::advance(Job& job, Clock::time_point now) {
  try {
    if (!job.ended) begin(job, now);
  } catch (const KvLost& lost) {
    end_lost(job, lost);
  } catch (const std::exception& failure) {  // of the library
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
  const std::int64_t room = staging_.room();
  if (job.landing->num_blocks() >= slots_.num_blocks() || bytes > room || now >= job.deadline)
    throw KvLost(KvLossReason::no_room,
                 fmt::format("{} blocks do not fit the {} of the buffer, or {} bytes the {} of its "
                             "rest (KvTransferConfig::buffer_bytes)",
                             job.landing->num_blocks(), slots_.num_blocks() - 1, bytes, room));
  return false;
}

void NixlPushReceiver::register_blocks(Job& job, Clock::time_point now) {
  const KvSource& source = job.fetch.source;
  const NixlMetadata& metadata = job.remote->ranks->front().metadata;
  NixlPushRegistration registration;
  const auto watched = watched_.find(job.fetch.request);
  const bool is_named = watched != watched_.end() && !watched->second.registered;
  registration.request = is_named ? watched->second.name : random_request_name(source.request);
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
  if (job.has_sums) job.ask_at = now + kAskAfter;
  if (is_named) watched->second.registered = true;
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
  job.landing->fill(slots_, *job.blocks, job.range->bytes());
  // Afterwards: what somebody writes meanwhile is seen.
  if (job.has_sums) job.landing->check_sums(slots_, *job.blocks, job.registered);
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
    if (job.remote->is_ready())
      remotes_.tell_quire(*job.remote, encode_push_forgotten(job.registered));
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
