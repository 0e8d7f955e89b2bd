#include "engine/kv_transfer/mooncake/puller.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "base/log.h"
#include "engine/kv_transfer/plane/timer_wait.h"

namespace quire {
namespace {

constexpr std::size_t kMostKnown = 1024;  // starts of engines
constexpr int kTimesTold = 2;

std::string name_of(const KvSource& source) {
  return fmt::format("{} {}", source.address.text(), source.engine);
}

template <class T>
T value_or_lose(Result<T> result, KvLossReason reason) {
  if (!result) throw KvLost(reason, result.error().detail);
  return std::move(*result);
}

// Another Quire server's reason; vLLM's servers say only that it failed.
[[noreturn]] void lose(const MooncakeAnswer& answer) {
  const bool is_known = answer.reason && *answer.reason < kKvLossNames.size();
  throw KvLost(is_known ? static_cast<KvLossReason>(*answer.reason) : KvLossReason::refused,
               answer.why.empty() ? "the peer says that it failed, not why" : answer.why);
}

}  // namespace

struct MooncakePuller::Job {
  Job(asio::any_io_executor executor, KvFetch f)
      : fetch(std::move(f)), changed(executor, Clock::time_point::max()) {}

  KvFetch fetch;
  asio::steady_timer changed;  // cancelled when bytes or room came, or it is not wanted any more
  Clock::time_point start = Clock::now();
  std::shared_ptr<MooncakeWindow> window;
  std::shared_ptr<StagedRange> range;
  std::optional<std::uint64_t> sum;                  // as the peer says
  std::vector<std::shared_ptr<MooncakeLink>> links;  // where it was asked
  bool ended = false;         // whoever asked has its answer; a peer may still write
  bool is_released = false;   // and nobody else tells the peer if it does not write
  bool is_forgotten = false;  // the peer says that it keeps it no more

  // Until something changed, or the time is over.
  awaitable<void> wait(Clock::time_point until) {
    changed.expires_at(until);
    co_await until_woken(changed);
  }
};

MooncakePuller::MooncakePuller(asio::any_io_executor executor, TaskGroup& tasks,
                               const MooncakeSelf& self, const PeerList& peers,
                               MooncakeInbox& inbox, StagingBuffer& staging,
                               MooncakePullerOptions options, std::function<void()> wake)
    : executor_(executor),
      tasks_(tasks),
      self_(self),
      peers_(peers),
      inbox_(inbox),
      staging_(staging),
      options_(std::move(options)),
      wake_(std::move(wake)) {}

MooncakePuller::~MooncakePuller() = default;

void MooncakePuller::watch(RequestId request, KvSource source) {
  watched_[request] = {std::move(source)};
}

void MooncakePuller::fetch(KvFetch fetch) {
  auto job = std::make_shared<Job>(executor_, std::move(fetch));
  jobs_.push_back(job);
  tasks_.spawn(run(std::move(job)));
}

void MooncakePuller::cancel(RequestId request) {
  for (const auto& job : jobs_) {
    if (job->fetch.request != request || job->ended) continue;
    end_lost(*job, KvLost(KvLossReason::refused, "cancelled"));
    // Who is writing has to come to an end, and answers then. Nobody else is waited for.
    if (job->window && job->window->landing.arrived_bytes() > 0) continue;
    for (const auto& link : job->links) link->hang_up();
    is_not_written(*job);
  }
}

void MooncakePuller::release(RequestId request) {
  const auto found = watched_.find(request);
  if (found == watched_.end()) return;
  const Watched watched = std::move(found->second);
  watched_.erase(found);
  if (!watched.told) return tasks_.spawn(tell(watched.source));
  for (const auto& job : jobs_)
    if (job->fetch.request == request) job->is_released = true;
}

void MooncakePuller::room_came() {
  for (const auto& job : jobs_) job->changed.cancel();
}

awaitable<void> MooncakePuller::run(std::shared_ptr<Job> job) {
  const std::string peer = job->fetch.source.address.text();
  const Clock::time_point asked = Clock::now();
  // Whoever is writing into the window has it for longer than the job is there.
  struct Closing {
    MooncakePuller& puller;
    std::shared_ptr<Job> job;
    ~Closing() {
      if (job->window) {
        job->window->changed = [] {};
        puller.inbox_.close(*job->window);
      }
      puller.jobs_.remove(job);
    }
  } const closing{*this, job};
  try {
    if (!silent_.may_ask(peer, asked))
      throw KvLost(KvLossReason::peer_lost, "it was silent a moment ago and is left alone");
    co_await pull(*job);
  } catch (const KvLost& lost) {
    was_lost(*job, lost, asked);
  } catch (const Failure& failure) {
    was_lost(*job, KvLost(KvLossReason::refused, failure.what()), asked);
  } catch (const boost::system::system_error& error) {
    if (error.code() == asio::error::operation_aborted) throw;
    was_lost(*job, KvLost(KvLossReason::peer_lost, error.what()), asked);
  }
}

void MooncakePuller::was_lost(Job& job, const KvLost& lost, Clock::time_point asked) {
  const KvSource& source = job.fetch.source;
  if (lost.is_silence()) silent_.was_silent(source.address.text(), asked, Clock::now());
  if (lost.reason() == KvLossReason::peer_lost && !job.ended) workers_.erase(name_of(source));
  if (!job.is_forgotten) is_not_written(job);
  end_lost(job, lost);
}

awaitable<void> MooncakePuller::pull(Job& job) {
  MooncakeWorkers workers = co_await workers_of(job.fetch.source);
  if (job.ended) co_return;
  const MooncakeLanding trial(self_, job.fetch.num_tokens, job.fetch.from, 1);
  job.window = std::make_shared<MooncakeWindow>(MooncakeLanding(
      self_, job.fetch.num_tokens, job.fetch.from, inbox_.next_first_id(trial.num_ids())));
  co_await take_room(job);
  if (job.ended) co_return;
  job.window->changed = [&job] { job.changed.cancel(); };
  inbox_.open(job.window);
  MooncakeAsk ask{.host = options_.host, .port = inbox_.port()};
  ask.regions = mooncake_regions(self_);
  KvWelcome welcome;
  welcome.protocol = kKvProtocol;
  welcome.geometry = self_.geometry;
  ask.geometry = encode_kv(welcome);
  ask.wanted.push_back({fmt::format("quire-{}", job.fetch.request.value),
                        job.fetch.source.prefill.key, job.window->landing.blocks(),
                        job.fetch.prompt_hash});
  job.links = co_await ask_all(std::move(workers), std::move(ask));
  if (job.ended) co_return;
  if (const auto watched = watched_.find(job.fetch.request); watched != watched_.end())
    watched->second.told = true;
  const auto deadline = Clock::now() + options_.prefill_patience;
  for (const auto& link : job.links) co_await answer_of(*link, job, deadline);
  if (job.ended) co_return;
  co_await all_has_come(job);
  if (!job.ended) finish(job);
}

awaitable<MooncakeWorkers> MooncakePuller::workers_of(KvSource source) {
  const auto known = workers_.find(name_of(source));
  if (known != workers_.end()) co_return known->second;
  const std::string peer = source.address.text();
  const auto refusal = failed_asks_.refusal(peer, source.engine, Clock::now());
  if (refusal) throw KvLost(*refusal);
  if (asked_.count(peer) >= FailedAsks::kMost && !failed_asks_.knows(peer, source.engine))
    throw KvLost(KvLossReason::refused,
                 fmt::format("{} has {} questions to answer", peer, FailedAsks::kMost));
  struct Asked {
    std::unordered_multiset<std::string>& all;
    const std::string& peer;
    ~Asked() { all.erase(all.find(peer)); }
  } const asked{asked_, peer};
  asked_.insert(peer);
  bool in_time = false;
  MooncakeWorkers workers;
  const auto ask = [&]() -> awaitable<void> { workers = co_await ask_bootstrap(source); };
  in_time = co_await with_timeout(options_.silence, ask());
  if (!in_time) throw KvLost(KvLossReason::peer_lost, "no answer from its bootstrap server", true);
  // A bootstrap server speaks for its own host; who else is asked stands in the allow-list.
  for (const SocketAddress& rank : workers.ranks)
    if (rank.host != source.address.host && !peers_.allows(rank))
      throw KvLost(KvLossReason::refused,
                   fmt::format("its bootstrap server names {}, which is not among "
                               "KvTransferConfig::peers ({})",
                               rank.text(), peers_.names()));
  if (workers_.size() >= kMostKnown) workers_.clear();
  workers_[name_of(source)] = workers;
  co_return workers;
}

awaitable<MooncakeWorkers> MooncakePuller::ask_bootstrap(KvSource source) {
  const auto line = co_await connect_line(executor_, source.address, options_.silence);
  const std::string question = http_question(source.address);
  co_await line->write(question);
  const std::string reply = co_await line->read_to_end(kMaxBootstrapBytes);
  if (reply.empty()) throw KvLost(KvLossReason::peer_lost, "its bootstrap server has gone");
  const std::string body = value_or_lose(http_body(reply), KvLossReason::corrupt);
  auto workers = find_workers(body, source.engine);
  if (workers) co_return std::move(*workers);
  const KvLost lost(KvLossReason::expired, workers.error().detail);
  failed_asks_.was_in_vain(source.address.text(), lost, bootstrap_engines(body), Clock::now());
  throw KvLost(lost);
}

awaitable<void> MooncakePuller::take_room(Job& job) {
  const std::int64_t landing = job.window->landing.bytes();
  const std::int64_t bytes = job.window->landing.content().bytes;
  const auto deadline = Clock::now() + options_.room_patience;
  while (!job.ended) {
    job.window->memory = staging_.take(landing);
    if (job.window->memory != nullptr) job.range = staging_.take(bytes);
    if (job.range != nullptr) co_return;
    job.window->memory.reset();  // two that wait must not hold a half each
    if (landing + bytes > staging_.size() || Clock::now() >= deadline)
      throw KvLost(KvLossReason::no_room, fmt::format("{} bytes do not fit the buffer of {} "
                                                      "(KvTransferConfig::buffer_bytes)",
                                                      landing + bytes, staging_.size()));
    co_await job.wait(deadline);
  }
}

// Every rank knows of it before one is waited for.
awaitable<std::vector<std::shared_ptr<MooncakeLink>>> MooncakePuller::ask_all(
    MooncakeWorkers workers, MooncakeAsk ask) {
  const std::string message = encode_ask(ask);
  std::vector<std::shared_ptr<MooncakeLink>> links;
  for (const SocketAddress& rank : workers.ranks) {
    auto line = co_await connect_line(executor_, rank, options_.silence);
    links.push_back(std::make_shared<MooncakeLink>(std::move(line)));
    co_await links.back()->greet("DEALER");
    co_await links.back()->send(message);
  }
  co_return links;
}

// The prefill may not have begun: as long as the peer lives it is waited for.
awaitable<void> MooncakePuller::answer_of(MooncakeLink& link, Job& job,
                                          Clock::time_point deadline) {
  while (true) {
    const std::string message = co_await link.receive(options_.silence / 2, deadline);
    const MooncakeAnswer answer = value_or_lose(parse_answer(message), KvLossReason::corrupt);
    silent_.answered(job.fetch.source.address.text());
    job.is_forgotten = answer.reason == static_cast<std::uint64_t>(KvLossReason::expired);
    if (answer.verdict == MooncakeVerdict::error || answer.verdict == MooncakeVerdict::layout_miss)
      lose(answer);
    if (!answer.failed.empty()) lose(answer);
    if (answer.sums.size() + (job.sum ? 1 : 0) > 1)
      throw KvLost(KvLossReason::corrupt, "the peer says several sums");
    if (!answer.sums.empty()) job.sum = answer.sums.front().second;
    job.window->landing.has_from(answer.first_rows);
    if (!answer.done.empty()) co_return;
    if (answer.verdict == MooncakeVerdict::finish)
      throw KvLost(KvLossReason::expired, "the peer ends without having written it");
  }
}

// What a peer without acknowledgements has sent may still be on its way.
awaitable<void> MooncakePuller::all_has_come(Job& job) {
  const auto deadline = Clock::now() + options_.silence;
  const MooncakeLanding& landing = job.window->landing;
  while (!landing.is_complete() && !job.ended) {
    if (Clock::now() >= deadline)
      throw KvLost(KvLossReason::corrupt,
                   fmt::format("the peer says that it has written all; {} of {} bytes are here",
                               landing.arrived_bytes(), landing.bytes()));
    co_await job.wait(deadline);
  }
}

// Nobody waits for it: without it the peer keeps the blocks for its time. A line may be lost; who
// is lost twice has gone.
awaitable<void> MooncakePuller::tell(KvSource source) {
  for (int left = kTimesTold; left > 0; --left) {
    try {
      co_return co_await tell_once(source);
    } catch (const KvLost& lost) {
      log::debug("kv_transfer.not_released", {{"because", lost.what()}});
      const bool is_line =
          lost.reason() == KvLossReason::peer_lost || lost.reason() == KvLossReason::corrupt;
      if (!is_line) co_return;
      workers_.erase(name_of(source));
    }
  }
}

awaitable<void> MooncakePuller::tell_once(KvSource source) {
  MooncakeWorkers workers = co_await workers_of(source);
  MooncakeAsk ask{.host = options_.host, .port = inbox_.port()};
  ask.regions = mooncake_regions(self_);
  ask.wanted.push_back({"quire-released", source.prefill.key});
  const auto links = co_await ask_all(std::move(workers), std::move(ask));
  const auto deadline = Clock::now() + options_.prefill_patience;
  for (const auto& link : links) co_await link->receive(options_.silence / 2, deadline);
}

void MooncakePuller::finish(Job& job) {
  const MooncakeLanding& landing = job.window->landing;
  const std::span<const std::byte> landed = job.window->memory->bytes();
  if (job.sum && *job.sum != landing.sum(job.fetch.source.prefill.key, landed))
    throw KvLost(KvLossReason::corrupt, "what has arrived has another sum than was said");
  const int num_ranks = static_cast<int>(job.links.size());
  check_mooncake_writers(self_, num_ranks, job.sum.has_value());
  landing.fill(landed, num_ranks, job.range->bytes());
  ++counts_.requests;
  counts_.bytes += landing.bytes();
  counts_.nanoseconds += std::chrono::nanoseconds(Clock::now() - job.start).count();
  KvFetched result;
  result.content = landing.content();
  result.range = std::move(job.range);
  end(job, std::move(result));
}

// The peer still has it, and is told once nobody here wants it any more.
void MooncakePuller::is_not_written(const Job& job) {
  if (job.is_released) return tasks_.spawn(tell(job.fetch.source));
  const auto watched = watched_.find(job.fetch.request);
  if (watched != watched_.end()) watched->second.told = false;
}

void MooncakePuller::end_lost(Job& job, const KvLost& lost) {
  if (job.ended) return;
  KvFetched result;
  result.loss = lost.reason();
  result.detail = lost.what();
  end(job, std::move(result));
}

void MooncakePuller::end(Job& job, KvFetched result) {
  job.ended = true;
  job.range.reset();
  if (job.window) job.window->memory.reset();
  job.changed.cancel();
  result.request = job.fetch.request;
  {
    const std::lock_guard lock(mutex_);
    fetched_.push_back(std::move(result));
  }
  wake_();
}

std::vector<KvFetched> MooncakePuller::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(fetched_, {});
}

}  // namespace quire
