#include "engine/kv_transfer/quire/receiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "base/all_of.h"
#include "base/log.h"
#include "engine/kv_transfer/quire/frame_link.h"
#include "engine/kv_transfer/quire/kept_stream.h"
#include "engine/kv_transfer/quire/receiver_link.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
// Of a peer that may have no place for another line.
constexpr std::chrono::milliseconds kPatienceForMore{200};

awaitable<void> until_cancelled(asio::steady_timer& timer) {
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

}  // namespace

struct KvReceiver::Job {
  explicit Job(KvFetch f)
      : fetch(std::move(f)),
        peer(fetch.source.address.text()),
        lane(peer + (fetch.source.pushed ? " pushed" : "")) {
    result.request = fetch.request;
  }

  const KvFetch fetch;
  const std::string peer, lane;
  std::string asked = peer;  // it may be told of another
  Clock::time_point asked_at = Clock::now();
  KvFetched result = {};
  bool begun = false;                  // the peer has answered
  bool cancelled = false;              // before it ran
  bool has_turn = false;               // counted in its lane
  asio::steady_timer* stop = nullptr;  // of one that runs: ends it
};

struct KvReceiver::RoomWait {
  asio::steady_timer timer;
};

KvReceiver::KvReceiver(TaskGroup& tasks, StagingBuffer& staging, KvReceiverOptions options,
                       std::function<void()> wake)
    : tasks_(tasks),
      staging_(staging),
      options_(std::move(options)),
      wake_(std::move(wake)),
      push_waits_(
          tasks,
          [this](SocketAddress address) -> awaitable<std::shared_ptr<FrameLink>> {
            const std::shared_ptr<Link> link = co_await connect(address, options_.silence);
            co_return std::shared_ptr<FrameLink>(link, &link->line);
          },
          options_.silence) {}

KvReceiver::~KvReceiver() = default;

void KvReceiver::watch(RequestId request, KvSource source) {
  watched_.insert_or_assign(request, std::move(source));
  if (!std::exchange(renews_, true)) tasks_.spawn(renew_all());
}

void KvReceiver::fetch(KvFetch fetch) {
  auto job = std::make_shared<Job>(std::move(fetch));
  jobs_[job->fetch.request] = job;
  queue_.push_back(std::move(job));
  start_fetches();
}

void KvReceiver::start_fetches() {
  for (auto next = queue_.begin(); next != queue_.end();) {
    const bool pushed = (*next)->fetch.source.pushed;  // has its turn when it begins
    if (!pushed && running_[(*next)->lane] >= options_.max_fetches) {
      ++next;
      continue;
    }
    if (!pushed) take_turn(**next);
    std::shared_ptr<Job> job = std::move(*next);
    next = queue_.erase(next);
    tasks_.spawn(run_fetch(std::move(job)));
  }
}

awaitable<void> KvReceiver::run_fetch(std::shared_ptr<Job> job) {
  const auto executor = co_await asio::this_coro::executor;
  co_await asio::post(executor, asio::use_awaitable);  // whoever starts it walks the queue
  co_await fetch_or_lose(*job);
  if (job->has_turn && --running_[job->lane] == 0) running_.erase(job->lane);
  end(*job);
  start_fetches();
  room_came();
}

void KvReceiver::cancel(RequestId request) {
  const auto found = jobs_.find(request);
  if (found == jobs_.end()) return;
  const std::shared_ptr<Job> job = found->second;
  if (job->stop != nullptr) {
    job->stop->cancel();
    return;
  }
  const auto waiting = std::ranges::find(queue_, job);
  job->cancelled = true;
  if (waiting == queue_.end()) return;  // about to begin or to end
  queue_.erase(waiting);
  job->result.loss = KvLossReason::refused;
  job->result.detail = "cancelled";
  end(*job);
}

void KvReceiver::release(RequestId request) {
  const auto found = watched_.find(request);
  if (found == watched_.end()) return;
  const KvSource source = std::move(found->second);
  watched_.erase(found);
  tell(source, KvFrameType::release, encode_kv(source.prefill));
}

void KvReceiver::room_came() {
  for (RoomWait* wait : room_waits_) wait->timer.cancel();
}

std::vector<KvFetched> KvReceiver::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(fetched_, {});
}

awaitable<void> KvReceiver::fetch_or_lose(Job& job) {
  const auto start = Clock::now();
  const auto executor = co_await asio::this_coro::executor;
  asio::steady_timer stop(executor, Clock::time_point::max());
  struct Stopping {
    Job& job;
    ~Stopping() { job.stop = nullptr; }
  } stopping{job};
  job.stop = &stop;
  try {
    if (job.cancelled) throw KvLost(KvLossReason::refused, "cancelled");
    turn_to(job, job.peer);
    const int first = co_await first_of(try_fetch(job), until_cancelled(stop));
    if (first == 1) throw KvLost(KvLossReason::refused, "cancelled");
    silent_.answered(job.asked);
    ++counts_.requests;
    counts_.bytes += job.result.content.bytes;
    counts_.nanoseconds += std::chrono::nanoseconds(Clock::now() - start).count();
  } catch (const KvLost& lost) {
    if (lost.is_silence()) silent_.was_silent(job.asked, job.asked_at, Clock::now());
    const bool is_of_peer =  // what it says, be it a refusal or that it is another one by now
        lost.reason() == KvLossReason::expired || lost.reason() == KvLossReason::incompatible;
    if (!lost.is_silence() && (job.begun || is_of_peer)) silent_.answered(job.asked);
    job.result.loss = lost.reason();
    job.result.detail = lost.what();
  } catch (const std::exception& e) {
    if (is_cancellation(std::current_exception())) throw;
    job.result.loss = KvLossReason::refused;
    job.result.detail = e.what();
  }
}

void KvReceiver::end(Job& job) {
  if (job.result.loss) job.result.range.reset();
  const RequestId request = job.fetch.request;
  {
    const std::lock_guard lock(mutex_);
    fetched_.push_back(std::move(job.result));
  }
  jobs_.erase(request);
  wake_();
}

awaitable<void> KvReceiver::try_fetch(Job& job) {
  const KvSource& source = job.fetch.source;
  if (!source.pushed) {
    co_await fetch_at(job, source.address);
    co_return;
  }
  SocketAddress address = source.address;
  bool is_elsewhere = false;
  try {
    co_await push_waits_.begun(address, source.prefill);
  } catch (const KvElsewhere& told) {
    address = other_address(job, told);
    is_elsewhere = address.text() != job.peer;
  }
  if (is_elsewhere) {
    silent_.answered(job.peer);
    turn_to(job, address.text());
    co_await push_waits_.begun(address, source.prefill);
  }
  co_await fetch_at(job, address);
}

void KvReceiver::turn_to(Job& job, const std::string& peer) {
  const auto now = Clock::now();
  if (!silent_.may_ask(peer, now))
    throw KvLost(KvLossReason::peer_lost, "it was silent a moment ago and is left alone");
  job.asked = peer;
  job.asked_at = now;
}

// Once: a second one that sends on is no owner.
SocketAddress KvReceiver::other_address(const Job& job, const KvElsewhere& told) {
  auto address = parse_socket_address(told.address());
  if (!address || !options_.may_ask || !options_.may_ask(*address))
    throw KvLost(KvLossReason::refused,
                 fmt::format("it is said to be at {:.200}, which is not among those that this "
                             "server may fetch from (KvTransferConfig::peers)",
                             told.address()));
  if (const auto watched = watched_.find(job.fetch.request); watched != watched_.end())
    watched->second.address = *address;
  return std::move(*address);
}

awaitable<void> KvReceiver::fetch_at(Job& job, SocketAddress address) {
  std::shared_ptr<Link> link = idle_link(address);
  // Of another start of the peer than the one that keeps it: such a link leads nowhere any more, or
  // the request names one that there is not.
  if (link != nullptr && !is_of(*link, job.fetch.source.engine)) {
    if (const auto refusal =
            failed_asks_.refusal(address.text(), job.fetch.source.engine, Clock::now())) {
      keep_idle(std::move(link));
      throw KvLost(*refusal);
    }
  }
  while (link != nullptr && !is_of(*link, job.fetch.source.engine)) link = idle_link(address);
  if (link != nullptr) {
    try {
      co_await read_from(job, link);
      co_return;
    } catch (const KvLost& lost) {
      // It may have ended while nobody looked.
      if (lost.reason() != KvLossReason::peer_lost || job.begun || lost.is_silence()) throw;
    }
  }
  link = co_await connect(address, options_.silence);
  try {
    check_peer(*link, job.fetch.source);
  } catch (const KvLost& lost) {
    failed_asks_.was_in_vain(address.text(), lost, {link->peer.engine}, Clock::now());
    keep_idle(std::move(link));
    throw;
  }
  co_await read_from(job, link);
}

void KvReceiver::check_peer(const Link& link, const KvSource& source) const {
  if (!is_of(link, source.engine))
    throw KvLost(KvLossReason::expired,
                 fmt::format("remote_engine_id is {} in the request, but {} answers: it has been "
                             "started again, or it is another",
                             source.engine, link.peer.engine));
  const std::string difference = geometry_difference(options_.geometry, link.peer.geometry);
  if (!difference.empty()) throw KvLost(KvLossReason::incompatible, difference);
}

awaitable<void> KvReceiver::read_from(Job& job, std::shared_ptr<Link> link) {
  check_peer(*link, job.fetch.source);
  job.result.content = kv_content(link->peer.geometry, job.fetch.num_tokens, job.fetch.from);
  co_await make_room(job);
  std::vector<std::shared_ptr<Link>> lines{std::move(link)};
  co_await add_lines(job, lines);
  const SocketAddress address = lines.front()->address;
  const auto parts = static_cast<int>(lines.size());
  std::vector<awaitable<void>> reads;
  for (int part = 0; part < parts; ++part)
    reads.push_back(read_part(job, std::move(lines[static_cast<std::size_t>(part)]), part, parts));
  try {
    co_await all_of(std::move(reads));
    co_return;
  } catch (const KvLost& lost) {
    if (parts == 1 || lost.reason() != KvLossReason::peer_lost || lost.is_silence()) throw;
  }
  // One that had not asked yet made place for another: all of it over a line.
  link = co_await connect(address, options_.silence);
  check_peer(*link, job.fetch.source);
  co_await read_part(job, std::move(link), 0, 1);
}

// As many as the content is worth, or as the peer has places for.
awaitable<void> KvReceiver::add_lines(const Job& job, std::vector<std::shared_ptr<Link>>& lines) {
  const SocketAddress address = lines.front()->address;
  const std::string& engine = lines.front()->peer.engine;
  const int wanted = num_lines(job, *lines.front());
  const auto patience = std::min<std::chrono::nanoseconds>(options_.silence, kPatienceForMore);
  try {
    while (static_cast<int>(lines.size()) < wanted) {
      std::shared_ptr<Link> link = idle_link(address);
      while (link != nullptr && !is_of(*link, engine)) link = idle_link(address);
      if (link == nullptr) link = co_await connect(address, patience);
      if (!is_of(*link, engine)) break;
      check_peer(*link, job.fetch.source);
      lines.push_back(std::move(link));
    }
  } catch (const KvLost& lost) {
    log::debug("kv_transfer.fewer_lines", {{"peer", job.peer}, {"because", lost.what()}});
  }
}

int KvReceiver::num_lines(const Job& job, const Link& link) const {
  if (job.fetch.source.pushed || link.memory != nullptr || link.address.is_unix()) return 1;
  const std::int64_t most =
      job.result.content.bytes / std::max<std::int64_t>(options_.line_bytes, 1);
  return static_cast<int>(std::clamp<std::int64_t>(most, 1, options_.max_lines));
}

awaitable<void> KvReceiver::read_part(Job& job, std::shared_ptr<Link> link, int part, int parts) {
  const std::uint64_t stream = ++last_stream_;
  co_await ask(job, *link, stream, part, parts);
  const std::span<const std::byte> memory =
      link->memory ? link->memory->bytes() : std::span<const std::byte>();
  const KvReading reading{.link = link->line,
                          .stream = stream,
                          .content = job.result.content,
                          .bytes = job.result.range->bytes(),
                          .memory = memory,
                          .silence = options_.silence,
                          .patience = options_.push_patience,
                          .begun = job.begun,
                          .part = part,
                          .parts = parts};
  if (job.fetch.source.pushed) {
    co_await read_pushed(reading);
  } else {
    co_await read_kept(reading);
  }
  keep_idle(std::move(link));
}

awaitable<void> KvReceiver::ask(Job& job, Link& link, std::uint64_t stream, int part, int parts) {
  KvRead read;
  read.prefill = job.fetch.source.prefill;
  read.num_tokens = job.fetch.num_tokens;
  read.from = job.fetch.from;
  read.prompt_hash = job.fetch.prompt_hash;
  read.in_place = link.memory != nullptr;
  read.pushed = job.fetch.source.pushed;
  read.part = part;
  read.parts = parts;
  constexpr int kPerSilence = 4;
  read.alive_ms = static_cast<int>(
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.silence).count() /
      kPerSilence);
  const std::string text = encode_kv(read);
  co_await link.line.send(KvFrameType::read, stream, text);
}

void KvReceiver::take_turn(Job& job) {
  ++running_[job.lane];
  job.has_turn = true;
}

// And a turn, where it has none yet.
bool KvReceiver::take_room(Job& job) {
  if (!job.has_turn && running_[job.lane] >= options_.max_pushed) return false;
  job.result.range = staging_.take(job.result.content.bytes);
  if (job.result.range != nullptr && !job.has_turn) take_turn(job);
  return job.result.range != nullptr;
}

awaitable<void> KvReceiver::make_room(Job& job) {
  const std::int64_t wanted = job.result.content.bytes;
  if (job.result.range != nullptr) co_return;  // of the attempt before
  const auto deadline = Clock::now() + options_.room_patience;
  const auto executor = co_await asio::this_coro::executor;
  while (!take_room(job)) {
    if (wanted > staging_.size() || Clock::now() >= deadline)
      throw KvLost(
          KvLossReason::no_room,
          fmt::format("{} bytes do not fit the buffer of {} (KvTransferConfig::buffer_bytes)",
                      wanted, staging_.size()));
    RoomWait wait{asio::steady_timer(executor, deadline)};
    struct Entry {
      std::list<RoomWait*>& waits;
      std::list<RoomWait*>::iterator at;
      ~Entry() { waits.erase(at); }
    } entry{room_waits_, room_waits_.insert(room_waits_.end(), &wait)};
    boost::system::error_code error;
    co_await wait.timer.async_wait(asio::redirect_error(asio::use_awaitable, error));
  }
}

}  // namespace quire
