#include "engine/kv_transfer/mooncake/keeper.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "base/log.h"
#include "engine/kv_transfer/peers/listener.h"
#include "engine/kv_transfer/peers/refusals.h"

namespace quire {
namespace {

using Clock = KeptPrefills::Clock;
constexpr std::size_t kMostWritten = 1 << 16;  // of servers that decode with several ranks

constexpr std::size_t kMostReleased = 1024;
constexpr std::size_t kMostPending = 4096;                   // requests that wait for their prefill
constexpr std::size_t kMostBlocksOfPeer = kMostAskedBlocks;  // of all its asks that are pending
constexpr std::size_t kMostBlocks = 8 * kMostAskedBlocks;    // of everybody's
constexpr int kLinesPerSecond = 8;
constexpr std::size_t kSaidOfName = 8;  // whoever knows all of a name may fetch what it names

log::Limit& limit() {
  static log::Limit lines(kLinesPerSecond);
  return lines;
}

struct Counted {
  std::size_t& count;
  explicit Counted(std::size_t& c) : count(c) { ++count; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --count; }
};

bool is_release(const MooncakeAsk& ask) {
  return std::ranges::all_of(ask.wanted, [](const auto& one) { return one.blocks.empty(); });
}

MooncakeAnswer refusal(const MooncakeAsk& ask, const KvLost& lost) {
  const bool is_miss = ask.layout != 0 && ask.regions.empty();
  MooncakeAnswer answer{.verdict = is_miss ? MooncakeVerdict::layout_miss : MooncakeVerdict::error,
                        .why = lost.what()};
  answer.reason = static_cast<std::uint64_t>(lost.reason());
  return answer;
}

}  // namespace

// Who asks over one connection.
struct MooncakeKeeper::Peer {
  MooncakeLink link;
  std::string host;
  std::size_t num_asks = 0, num_blocks = 0;  // that are pending
};

// One message; its requests are answered one by one, as they are ready.
struct MooncakeKeeper::Asked {
  Asked(std::shared_ptr<Peer> p, MooncakeAsk a, std::size_t& all)
      : peer(std::move(p)),
        ask(std::move(a)),
        num_blocks(ask.num_blocks()),
        num_all_blocks(all),
        left(ask.wanted.size()) {
    ++peer->num_asks;
    peer->num_blocks += num_blocks;
    num_all_blocks += num_blocks;
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
  ~Asked() {
    --peer->num_asks;
    peer->num_blocks -= num_blocks;
    num_all_blocks -= num_blocks;
  }

  const std::shared_ptr<Peer> peer;
  const MooncakeAsk ask;
  const std::size_t num_blocks;
  std::size_t& num_all_blocks;
  std::size_t left;
};

MooncakeKeeper::MooncakeKeeper(asio::any_io_executor executor, TaskGroup& tasks,
                               const SocketAddress& address, const MooncakeSelf& self,
                               const PeerList& peers, MooncakeKeeperOptions options,
                               KeptPrefills& kept)
    : executor_(executor),
      tasks_(tasks),
      self_(self),
      peers_(peers),
      options_(std::move(options)),
      kept_(kept),
      bootstrap_(listen_for_peers(address)),
      asks_(listen_for_peers(with_port(address, 0))),
      visitors_(options_.max_connections),
      waits_(std::make_shared<KeptWaits>(executor)) {
  workers_ = bootstrap_json(options_.data_parallel_rank,
                            {options_.engine, {with_port(address, port_of(asks_))}});
  kept_.on_kept(KeptWaits::waker(waits_));
}

MooncakeKeeper::~MooncakeKeeper() {
  kept_.on_kept([] {});
}

awaitable<void> MooncakeKeeper::expire() { return waits_->expire(kept_, options_.changed); }

awaitable<void> MooncakeKeeper::accept_queries() { return accept(bootstrap_, true); }
awaitable<void> MooncakeKeeper::accept_asks() { return accept(asks_, false); }

awaitable<void> MooncakeKeeper::accept(const Descriptor& listener, bool is_query) {
  return accept_peers(executor_, listener, tasks_,
                      {.make_place = [this] { return visitors_.make_place(); },
                       .serve = [this, is_query](Descriptor socket) {
                         return is_query ? answer_query(std::move(socket))
                                         : answer_asks(std::move(socket));
                       }});
}

awaitable<void> MooncakeKeeper::answer_query(Descriptor socket) {
  ByteLine line(executor_, std::move(socket), options_.silence);
  const Visitors::Visit visit(
      visitors_, [&line] { line.hang_up(); }, [] { return true; });
  line.allow(options_.silence);
  const std::string head = co_await line.read_until("\r\n\r\n", kMaxRequestHeadBytes);
  const std::string reply = http_reply(head, workers_);
  co_await line.write(reply);
  line.end_writing();
  co_await line.has_come(options_.silence);  // until the other end has taken it
}

awaitable<void> MooncakeKeeper::answer_asks(Descriptor socket) {
  std::string host = remote_host(socket.get());
  auto line = std::make_unique<ByteLine>(executor_, std::move(socket), options_.silence);
  const std::shared_ptr<Peer> peer(new Peer{MooncakeLink(std::move(line)), std::move(host)});
  const auto hang_up = [&peer] {
    peer->link.has_ended();
    peer->link.hang_up();
  };
  Visitors::Visit visit(visitors_, hang_up, [&peer] { return peer->num_asks == 0; });
  // Nobody computes or waits for somebody who has gone.
  struct Gone {
    MooncakeKeeper& keeper;
    const std::function<void()> hang_up;
    ~Gone() {
      hang_up();
      keeper.waits_->wake();
    }
  } const gone{*this, hang_up};
  co_await peer->link.greet("ROUTER");
  while (true) {
    std::string message = co_await peer->link.receive(options_.silence);
    visit.was_of_use();
    co_await begin(peer, std::move(message));
  }
}

void MooncakeKeeper::check(const Peer& peer, MooncakeAsk& ask) const {
  if (num_pending_ + ask.wanted.size() > kMostPending)
    throw KvLost(KvLossReason::refused, fmt::format("{} requests wait already; at most {} do",
                                                    num_pending_, kMostPending));
  if (is_release(ask)) return;  // nothing is written
  check_mooncake_ask(self_, ask);
  check_mooncake_host(peers_, peer.host, ask);
  const std::size_t count = ask.num_blocks();
  if (peer.num_blocks + count > kMostBlocksOfPeer || num_blocks_ + count > kMostBlocks)
    throw KvLost(KvLossReason::refused,
                 fmt::format("{} blocks are waited for already, {} of them here; at most {} are, "
                             "and {} over one connection",
                             num_blocks_, peer.num_blocks, kMostBlocks, kMostBlocksOfPeer));
}

// A refusal is sent before the next message is read, so that they do not pile up.
awaitable<void> MooncakeKeeper::begin(std::shared_ptr<Peer> peer, std::string message) {
  auto parsed = parse_ask(message);
  MooncakeAsk ask;
  std::string refused;
  try {
    if (!parsed) throw KvLost(KvLossReason::corrupt, parsed.error().detail);
    ask = std::move(*parsed);
    check(*peer, ask);
  } catch (const KvLost& lost) {
    log_refused(lost.what());
    refused = encode_answer(refusal(ask, lost));
  }
  if (!refused.empty()) co_return co_await peer->link.send(std::move(refused));
  const auto asked = std::make_shared<Asked>(std::move(peer), std::move(ask), num_blocks_);
  for (std::size_t i = 0; i < asked->ask.wanted.size(); ++i) tasks_.spawn(answer_one(asked, i));
}

awaitable<void> MooncakeKeeper::answer_one(std::shared_ptr<Asked> asked, std::size_t which) {
  const Counted pending(num_pending_);
  const MooncakeWanted& wanted = asked->ask.wanted[which];
  MooncakeAnswer answer;
  const auto fail = [&](const std::exception& error, KvLossReason reason) {
    if (limit().allows())
      log::warn(
          "kv_transfer.not_sent",
          {{"request", wanted.transfer.substr(0, kSaidOfName) + "..."}, {"because", error.what()}});
    answer.failed.push_back(wanted.id);
    answer.why = error.what();
    answer.reason = static_cast<std::uint64_t>(reason);
  };
  try {
    const MooncakeSum sum = co_await write(*asked, wanted);
    answer.done.push_back(wanted.id);
    if (!asked->ask.geometry.empty() && !wanted.blocks.empty()) {
      answer.sums.emplace_back(wanted.id, sum.sum);
      answer.first_rows = sum.first_rows;
    }
  } catch (const KvLost& lost) {
    fail(lost, lost.reason());
  } catch (const boost::system::system_error& error) {
    if (error.code() == asio::error::operation_aborted) throw;
    fail(error, KvLossReason::peer_lost);
  } catch (const std::exception& error) {
    fail(error, KvLossReason::refused);
  }
  answer.verdict = --asked->left == 0 ? MooncakeVerdict::finish : MooncakeVerdict::go_on;
  options_.changed();
  try {
    std::string body = encode_answer(answer);
    co_await asked->peer->link.send(std::move(body));
  } catch (const KvLost& lost) {
    log::debug("kv_transfer.connection_ended", {{"because", lost.what()}});
    asked->peer->link.hang_up();
  }
}

// Waits until it has been computed.
awaitable<std::shared_ptr<const KeptPrefill>> MooncakeKeeper::kept(std::shared_ptr<Peer> peer,
                                                                   std::string transfer) {
  const auto deadline = Clock::now() + options_.wait_for_prefill;
  while (true) {
    if (!peer->link.is_open()) throw KvLost(KvLossReason::peer_lost, "whoever asked has gone");
    auto prefill = kept_.find(transfer, 0);
    if (prefill != nullptr && prefill->progress != nullptr)
      throw KvLost(prefill->progress->why, "it was not computed, or there is no room for it");
    if (prefill != nullptr) co_return prefill;
    if (std::ranges::find(released_, transfer) != released_.end())
      throw KvLost(KvLossReason::expired, "it was written already, and is kept no more");
    if (Clock::now() >= deadline)
      throw KvLost(KvLossReason::expired, "Timeout waiting for P side ready.");
    co_await waits_->wait(deadline);
  }
}

awaitable<MooncakeSum> MooncakeKeeper::write(Asked& asked, const MooncakeWanted& wanted) {
  const auto prefill = co_await kept(asked.peer, wanted.transfer);
  const bool is_empty = std::ranges::all_of(
      wanted.blocks, [](const std::vector<std::int64_t>& group) { return group.empty(); });
  MooncakeSum sum;
  if (!is_empty) {
    if (wanted.prompt_hash && *wanted.prompt_hash != prefill->prompt_hash)
      throw KvLost(KvLossReason::prompt, "it is of another prompt");
    if (wanted.blocks.size() != self_.regions.num_groups)
      throw KvLost(KvLossReason::incompatible,
                   fmt::format("KV group count mismatch: {} here and {} there",
                               self_.regions.num_groups, wanted.blocks.size()));
    const auto start = Clock::now();
    const auto is_wanted = [&] {
      if (!asked.peer->link.is_open())
        throw KvLost(KvLossReason::peer_lost, "whoever asked has gone");
      if (kept_.find(wanted.transfer, 0) != prefill)
        throw KvLost(KvLossReason::expired, "its time has ended while it was written");
    };
    sum = co_await write_mooncake(executor_, self_, asked.ask, wanted, prefill, options_.silence,
                                  is_wanted);
    counts_.bytes += sum.bytes;
    counts_.nanoseconds += std::chrono::nanoseconds(Clock::now() - start).count();
  }
  was_written(asked, wanted.transfer);
  co_return sum;
}

// The last of the ranks that share it ends its time.
void MooncakeKeeper::was_written(const Asked& asked, const std::string& transfer) {
  if (asked.ask.tensor_ranks > 1) {
    if (written_.size() >= kMostWritten) written_.clear();
    std::set<int>& ranks = written_[transfer];
    ranks.insert(asked.ask.tensor_rank);
    if (static_cast<int>(ranks.size()) < asked.ask.tensor_ranks) return;
    written_.erase(transfer);
  }
  ++counts_.requests;
  if (released_.size() >= kMostReleased) released_.pop_front();
  released_.push_back(transfer);
  kept_.release(transfer, 0);
}

}  // namespace quire
