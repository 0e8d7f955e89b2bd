// A receiver's connections, and what peers are told beside fetches.

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/this_coro.hpp>
#include <map>

#include "base/log.h"
#include "engine/kv_transfer/plane/begin_line.h"
#include "engine/kv_transfer/quire/receiver_link.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMaxIdleLinks = 16;

}  // namespace

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

awaitable<std::shared_ptr<KvReceiver::Link>> KvReceiver::connect(
    const SocketAddress& address, std::chrono::nanoseconds patience) {
  Descriptor socket = co_await begin_line(address, options_.silence);
  const auto executor = co_await asio::this_coro::executor;
  const auto link = std::make_shared<Link>(executor, address, std::move(socket), options_.silence);
  co_await link->line.connected();
  const std::string hello = encode_kv(KvHello());
  co_await link->line.send(KvFrameType::hello, 0, hello);
  const KvFrameHeader header = co_await link->line.read_header(patience);
  if (header.type != KvFrameType::welcome)
    throw KvLost(KvLossReason::corrupt, "the peer did not begin with welcome");
  const std::string body = co_await link->line.read_message(header);
  auto welcome = decode_kv<KvWelcome>(body);
  if (!welcome) throw KvLost(KvLossReason::corrupt, "welcome is broken");
  if (const std::string difference = protocol_difference(*welcome); !difference.empty())
    throw KvLost(KvLossReason::incompatible, difference);
  link->peer = std::move(*welcome);
  if (Descriptor shared = link->line.take_descriptor(); shared && link->peer.shared_bytes > 0)
    link->memory = MappedRegion::map(std::move(shared), link->peer.shared_bytes);
  co_return link;
}

// A push may name none: then its key alone says which start it is of.
bool KvReceiver::is_of(const Link& link, const std::string& engine) {
  return engine.empty() || link.peer.engine == engine;
}

void KvReceiver::keep_idle(std::shared_ptr<Link> link) {
  idle_.push_back(std::move(link));
  if (idle_.size() > kMaxIdleLinks) idle_.erase(idle_.begin());
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
        link = co_await connect(address, options_.silence);
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
