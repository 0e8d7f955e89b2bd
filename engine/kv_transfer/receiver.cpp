#include "engine/kv_transfer/receiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <map>
#include <utility>

#include "base/log.h"
#include "engine/kv_transfer/frame_link.h"
#include "engine/kv_transfer/kept_stream.h"
#include "engine/kv_transfer/push_stream.h"
#include "engine/kv_transfer/shared_region.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMaxIdleLinks = 16;

awaitable<void> until_cancelled(asio::steady_timer& timer) {
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

}  // namespace

// A connection to a peer that has said who it is.
struct KvReceiver::Link {
  Link(asio::any_io_executor executor, SocketAddress a, Descriptor socket,
       std::chrono::nanoseconds silence)
      : address(std::move(a)), line(std::move(executor), std::move(socket), silence) {}

  const SocketAddress address;
  FrameLink line;
  KvWelcome peer;
  std::shared_ptr<const MappedRegion> memory = nullptr;  // of the peer; null: over the line
};

struct KvReceiver::Job {
  explicit Job(KvFetch f)
      : fetch(std::move(f)),
        peer(fetch.source.address.text()),
        lane(peer + (fetch.source.pushed ? " pushed" : "")) {
    result.request = fetch.request;
  }

  const KvFetch fetch;
  const std::string peer, lane;
  KvFetched result = {};
  bool begun = false;                  // the peer has answered
  bool cancelled = false;              // before it ran
  asio::steady_timer* stop = nullptr;  // of one that runs: ends it
};

// What a peer is told one after the other, so that many do not make many connections.
struct KvReceiver::Outbox {
  struct Message {
    KvFrameType type;
    std::string text;
    std::string engine;  // for no other at this address
  };
  std::vector<Message> messages = {};
};

struct KvReceiver::RoomWait {
  asio::steady_timer timer;
};

KvReceiver::KvReceiver(TaskGroup& tasks, StagingBuffer& staging, KvReceiverOptions options,
                       std::function<void()> wake)
    : tasks_(tasks), staging_(staging), options_(std::move(options)), wake_(std::move(wake)) {}

KvReceiver::~KvReceiver() = default;

void KvReceiver::watch(RequestId request, const KvSource& source) {
  watched_.insert_or_assign(request, source);
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
    std::size_t& running = running_[(*next)->lane];
    const bool pushed = (*next)->fetch.source.pushed;
    if (running >= (pushed ? options_.max_pushed : options_.max_fetches)) {
      ++next;
      continue;
    }
    ++running;
    std::shared_ptr<Job> job = std::move(*next);
    next = queue_.erase(next);
    tasks_.spawn(run_fetch(std::move(job)));
  }
}

awaitable<void> KvReceiver::run_fetch(std::shared_ptr<Job> job) {
  const auto executor = co_await asio::this_coro::executor;
  co_await asio::post(executor, asio::use_awaitable);  // whoever starts it walks the queue
  co_await fetch_or_lose(*job);
  const auto running = running_.find(job->lane);
  if (--running->second == 0) running_.erase(running);
  end(*job);
  start_fetches();
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
    if (!silent_.may_ask(job.peer, start))
      throw KvLost(KvLossReason::peer_lost, "it was silent a moment ago and is left alone");
    const int first = co_await first_of(try_fetch(job), until_cancelled(stop));
    if (first == 1) throw KvLost(KvLossReason::refused, "cancelled");
    silent_.answered(job.peer);
    ++counts_.requests;
    counts_.bytes += job.result.content.bytes;
    counts_.nanoseconds += std::chrono::nanoseconds(Clock::now() - start).count();
  } catch (const KvLost& lost) {
    if (lost.is_silence()) silent_.was_silent(job.peer, start, Clock::now());
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
  const SocketAddress& address = job.fetch.source.address;
  std::shared_ptr<Link> link = idle_link(address);
  // Of another start of the peer than the one that keeps it: such a link leads nowhere any more.
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
  link = co_await connect(address);
  co_await read_from(job, link);
}

// The one used last; those that have ended meanwhile are let go.
std::shared_ptr<KvReceiver::Link> KvReceiver::idle_link(const SocketAddress& address) {
  std::erase_if(idle_, [](const auto& link) { return !link->line.is_quiet(); });
  const auto found = std::find_if(idle_.rbegin(), idle_.rend(), [&](const auto& link) {
    return link->address.text() == address.text();
  });
  if (found == idle_.rend()) return nullptr;
  std::shared_ptr<Link> link = std::move(*found);
  idle_.erase(std::next(found).base());
  return link;
}

awaitable<std::shared_ptr<KvReceiver::Link>> KvReceiver::connect(const SocketAddress& address) {
  auto socket = begin_connect(address);
  if (!socket) throw KvLost(KvLossReason::peer_lost, socket.error().detail);
  const auto executor = co_await asio::this_coro::executor;
  const auto link = std::make_shared<Link>(executor, address, std::move(*socket), options_.silence);
  co_await link->line.connected();
  const std::string hello = encode_kv(KvHello());
  co_await link->line.send(KvFrameType::hello, 0, hello);
  const KvFrameHeader header = co_await link->line.read_header(options_.silence);
  if (header.type != KvFrameType::welcome)
    throw KvLost(KvLossReason::corrupt, "the peer did not begin with welcome");
  const std::string body = co_await link->line.read_message(header);
  auto welcome = decode_kv<KvWelcome>(body);
  if (!welcome) throw KvLost(KvLossReason::corrupt, "welcome is broken");
  if (welcome->protocol != kKvProtocol)
    throw KvLost(KvLossReason::incompatible,
                 fmt::format("protocol is {} here and {} there", kKvProtocol, welcome->protocol));
  link->peer = std::move(*welcome);
  if (Descriptor shared = link->line.take_descriptor(); shared && link->peer.shared_bytes > 0)
    link->memory = MappedRegion::map(std::move(shared), link->peer.shared_bytes);
  co_return link;
}

// A push may name none: then its key alone says which start it is of.
bool KvReceiver::is_of(const Link& link, const std::string& engine) {
  return engine.empty() || link.peer.engine == engine;
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
  const bool pushed = job.fetch.source.pushed;
  if (!pushed) co_await make_room(job);
  const std::uint64_t stream = ++last_stream_;
  co_await ask(job, *link, stream);
  const std::span<const std::byte> memory =
      link->memory ? link->memory->bytes() : std::span<const std::byte>();
  const KvReading reading{.link = link->line,
                          .stream = stream,
                          .content = job.result.content,
                          .bytes = pushed ? std::span<std::byte>() : job.result.range->bytes(),
                          .memory = memory,
                          .silence = options_.silence,
                          .patience = options_.push_patience,
                          .begun = job.begun,
                          .room = [this, &job]() -> awaitable<std::span<std::byte>> {
                            co_await make_room(job);
                            co_return job.result.range->bytes();
                          }};
  if (pushed) {
    co_await read_pushed(reading);
  } else {
    co_await read_kept(reading);
  }
  keep_idle(std::move(link));
}

void KvReceiver::keep_idle(std::shared_ptr<Link> link) {
  idle_.push_back(std::move(link));
  if (idle_.size() > kMaxIdleLinks) idle_.erase(idle_.begin());
}

awaitable<void> KvReceiver::ask(Job& job, Link& link, std::uint64_t stream) {
  KvRead read;
  read.prefill = job.fetch.source.prefill;
  read.num_tokens = job.fetch.num_tokens;
  read.from = job.fetch.from;
  read.prompt_hash = job.fetch.prompt_hash;
  read.in_place = link.memory != nullptr;
  read.pushed = job.fetch.source.pushed;
  constexpr int kPerSilence = 4;
  read.alive_ms = static_cast<int>(
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.silence).count() /
      kPerSilence);
  const std::string text = encode_kv(read);
  co_await link.line.send(KvFrameType::read, stream, text);
}

awaitable<void> KvReceiver::make_room(Job& job) {
  const std::int64_t wanted = job.result.content.bytes;
  if (job.result.range != nullptr) co_return;  // of the attempt before
  const auto deadline = Clock::now() + options_.room_patience;
  const auto executor = co_await asio::this_coro::executor;
  while ((job.result.range = staging_.take(wanted)) == nullptr) {
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

awaitable<void> KvReceiver::renew_all() {
  while (true) {
    co_await sleep_for(options_.renew_every);
    if (watched_.empty()) break;
    std::map<std::pair<std::string, std::string>, std::pair<KvSource, KvRenew>> peers;
    for (const auto& [request, source] : watched_) {
      auto& [peer, renew] = peers[{source.address.text(), source.engine}];
      peer = source;
      renew.prefills.push_back(source.prefill);
    }
    std::erase_if(peers, [&](const auto& one) {  // it has not taken what it was told before
      return outboxes_.contains(one.first.first);
    });
    for (const auto& [name, peer] : peers)
      tell(peer.first, KvFrameType::renew, encode_kv(peer.second));
  }
  renews_ = false;
}

// Nobody waits for an answer: without it the lease ends.
void KvReceiver::tell(const KvSource& source, KvFrameType type, std::string message) {
  const auto [outbox, is_new] = outboxes_.try_emplace(source.address.text());
  outbox->second.messages.push_back({type, std::move(message), source.engine});
  if (is_new) tasks_.spawn(send_told(source.address));
}

awaitable<void> KvReceiver::send_told(SocketAddress address) {
  const std::string name = address.text();
  struct Ending {
    std::unordered_map<std::string, Outbox>& outboxes;
    const std::string& name;
    ~Ending() { outboxes.erase(name); }
  } ending{outboxes_, name};
  Outbox& outbox = outboxes_[name];
  while (!outbox.messages.empty()) {
    const auto messages = std::exchange(outbox.messages, {});
    const auto start = Clock::now();
    if (!silent_.may_ask(name, start)) continue;
    try {
      std::shared_ptr<Link> link = idle_link(address);
      if (link == nullptr) {
        link = co_await connect(address);
        silent_.answered(name);
      }
      for (const Outbox::Message& message : messages) {
        // A request can name an engine that it is not: then nothing is said of another's prefills.
        if (is_of(*link, message.engine)) co_await link->line.send(message.type, 0, message.text);
      }
      keep_idle(std::move(link));
    } catch (const KvLost& lost) {
      if (lost.is_silence()) silent_.was_silent(name, start, Clock::now());
      log::debug("kv_transfer.not_told", {{"peer", name}, {"because", lost.what()}});
    }
  }
}

}  // namespace quire
