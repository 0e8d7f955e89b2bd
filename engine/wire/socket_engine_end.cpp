// The engine's side of sockets: engine/wire/socket_channel.h.

#include <poll.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/wire/config_difference.h"
#include "engine/wire/connection.h"
#include "engine/wire/socket_channel.h"
#include "engine/wire/wake_up.h"

namespace quire {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kOpening{5000};
constexpr milliseconds kGlance{500};
constexpr milliseconds kLastWords{1000};      // to send what waits when the engine ends
constexpr std::size_t kBytesAhead = 4 << 20;  // encoded for a peer, not yet sent
constexpr std::size_t kMaxPeers = 64;
// A front end counts its requests from 1; in the engine its slot stands above the number.
constexpr int kSlotShift = 48;
constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << kSlotShift) - 1;

// A front end, as the thread sees it.
struct Peer {
  Peer(Descriptor socket, std::uint64_t slot, const std::string& secret)
      : connection(std::move(socket), WireConnection::Role::engine, secret), slot(slot) {}

  WireConnection connection;
  const std::uint64_t slot;
  const Clock::time_point since = Clock::now();
  bool greeted = false;
  // Under the end's mutex.
  bool configured = false;
  bool leaving = false;  // as soon as all is sent
  std::unordered_set<std::uint64_t> live = {};
  std::vector<EngineEvent> outbox = {};
};

class SocketEngineEnd final : public EngineEnd {
 public:
  SocketEngineEnd(Descriptor listener, SocketEngineOptions options)
      : options_(std::move(options)), listener_(std::move(listener)) {
    thread_ = std::thread([this] { run(); });
  }
  ~SocketEngineEnd() override {
    close();
    thread_.join();
  }

  bool take(std::vector<Command>& commands) override {
    const std::lock_guard lock(mutex_);
    return take_locked(commands);
  }
  bool wait_and_take(std::vector<Command>& commands) override {
    std::unique_lock lock(mutex_);
    command_arrived_.wait(lock, [this] { return !inbox_.empty() || closed_ || woken_; });
    woken_ = false;
    return take_locked(commands);
  }
  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    command_arrived_.notify_all();
  }

  void publish(EngineEvent event) override {
    {
      const std::lock_guard lock(mutex_);
      if (auto* step = std::get_if<StepOutput>(&event)) {
        publish_step(std::move(*step));
      } else if (std::holds_alternative<Hello>(event)) {
        hello_ = std::move(event);
      } else {
        if (std::holds_alternative<Ready>(event)) ready_ = event;
        for (Peer& peer : peers_) {
          if (peer.configured) peer.outbox.push_back(event);
        }
      }
    }
    wake_up_.wake();
  }

  void close() override {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    command_arrived_.notify_all();
    wake_up_.wake();
  }

 private:
  bool take_locked(std::vector<Command>& commands) {
    std::ranges::move(inbox_, std::back_inserter(commands));
    inbox_.clear();
    return !closed_;
  }

  // To each front end its own requests, and to all of them the statistics.
  void publish_step(StepOutput&& step) {
    for (Peer& peer : peers_) {
      if (!peer.configured) continue;
      StepOutput own;
      own.time = step.time;
      own.stats = step.stats;
      for (const TokenOutput& output : step.tokens) {
        if (output.id.value >> kSlotShift == peer.slot)
          own.tokens.push_back({RequestId{output.id.value & kNumberMask}, output.token});
      }
      for (RequestOutput& output : step.requests) {
        if (output.id.value >> kSlotShift != peer.slot) continue;
        if (output.finish_reason) peer.live.erase(output.id.value);
        own.requests.push_back(std::move(output));
        own.requests.back().id = RequestId{own.requests.back().id.value & kNumberMask};
        output.id = RequestId{~std::uint64_t{0}};  // moved from
      }
      for (Decision decision : step.decisions) {
        if (decision.request.value >> kSlotShift != peer.slot) continue;
        decision.request = RequestId{decision.request.value & kNumberMask};
        own.decisions.push_back(decision);
      }
      auto& outbox = peer.outbox;
      if (outbox.size() >= options_.socket.limits.max_events &&
          std::holds_alternative<StepOutput>(outbox.back())) {
        merge(std::get<StepOutput>(outbox.back()), std::move(own));
      } else {
        outbox.emplace_back(std::move(own));
      }
    }
  }

  void run() {
    std::optional<Clock::time_point> end;
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        if (closed_ && !end) end = Clock::now() + kLastWords;
      }
      bool all_sent = true;
      for (auto peer = peers_.begin(); peer != peers_.end();) {
        const auto ok = serve(*peer);
        all_sent = all_sent && !peer->connection.wants_write();
        const bool left = !ok || (peer->leaving && !peer->connection.wants_write());
        if (left) {
          drop(*peer, ok ? "" : ok.error().detail);
          const std::lock_guard lock(mutex_);
          peer = peers_.erase(peer);
        } else {
          ++peer;
        }
      }
      if (end && (all_sent || Clock::now() >= *end)) return;
      wait();
    }
  }

  void wait() {
    polled_.assign({pollfd{wake_up_.descriptor(), POLLIN, 0}, pollfd{listener_.get(), POLLIN, 0}});
    for (const Peer& peer : peers_) {
      const bool writes = peer.connection.wants_write();
      polled_.push_back(
          {peer.connection.descriptor(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
    }
    ::poll(polled_.data(), polled_.size(), static_cast<int>(kGlance.count()));
    if (polled_[0].revents != 0) wake_up_.reset();
    if (polled_[1].revents != 0) accept();
  }

  void accept() {
    while (Descriptor socket = accept_from(listener_)) {
      if (peers_.size() >= kMaxPeers) continue;  // closes it
      const std::lock_guard lock(mutex_);
      peers_.emplace_back(std::move(socket), next_slot_++ & 0x7fff, options_.socket.secret);
    }
  }

  // What can be done for a peer without waiting. Error: it has gone, or must.
  Result<void> serve(Peer& peer) {
    WireConnection& connection = peer.connection;
    frames_.clear();
    const auto read = connection.read(frames_);
    for (const std::string& frame : frames_) {
      if (frame == kPing) {
        connection.queue(kPong);
        continue;
      }
      auto command = decode_command(frame, connection.opened_at());
      if (!command) return command.error();
      if (*command) handle(peer, std::move(**command));
    }
    if (!read) return read;
    const auto now = Clock::now();
    if (!connection.is_open()) {
      if (now - peer.since > kOpening)
        return Error{ErrorCode::timeout, "the peer does not answer as a front end would", {}};
      return connection.write();
    }
    if (now - connection.last_heard() > 6 * options_.socket.silence)
      return Error{ErrorCode::timeout, "the front end says nothing any more", {}};
    queue_events(peer);
    return connection.write();
  }

  void queue_events(Peer& peer) {
    std::vector<EngineEvent> events;
    if (peer.connection.queued_bytes() < kBytesAhead) {
      const std::lock_guard lock(mutex_);
      if (!peer.greeted && hello_) {
        events.push_back(*hello_);
        peer.greeted = true;
      }
      std::ranges::move(peer.outbox, std::back_inserter(events));
      peer.outbox.clear();
    }
    for (const EngineEvent& event : events) {
      peer.connection.queue(encode(event, peer.connection.opened_at()));
    }
  }

  void handle(Peer& peer, Command command) {
    {
      const std::lock_guard lock(mutex_);
      if (auto* configure = std::get_if<Configure>(&command)) {
        if (!configure_from(peer, *configure)) return;
      } else if (auto* add = std::get_if<AddRequest>(&command)) {
        if (!ready_ || !peer.configured) return;
        add->id = RequestId{(add->id.value & kNumberMask) | peer.slot << kSlotShift};
        peer.live.insert(add->id.value);
      } else if (auto* abort = std::get_if<AbortRequest>(&command)) {
        abort->id = RequestId{(abort->id.value & kNumberMask) | peer.slot << kSlotShift};
        if (peer.live.erase(abort->id.value) == 0) return;
      }
      inbox_.push_back(std::move(command));
    }
    command_arrived_.notify_one();
  }

  // True: the engine has yet to be configured, with this.
  bool configure_from(Peer& peer, Configure& configure) {
    if (options_.localize) options_.localize(configure.config);
    if (peer.configured) return false;
    if (config_) {
      const std::string field = first_difference(*config_, configure.config);
      if (!field.empty()) {
        peer.outbox.emplace_back(
            EngineDead{{}, "the engine runs already for another front end, with another " + field});
        peer.leaving = true;
        log::warn("engine.front_end_refused", {{"because", "another " + field}});
        return false;
      }
    }
    peer.configured = true;
    if (ready_) peer.outbox.push_back(*ready_);
    if (config_) return false;
    config_ = configure.config;
    return true;
  }

  void drop(Peer& peer, const std::string& why) {
    if (!why.empty()) log::warn("engine.front_end_gone", {{"because", why}});
    {
      const std::lock_guard lock(mutex_);
      for (const std::uint64_t id : peer.live) inbox_.emplace_back(AbortRequest{RequestId{id}});
    }
    command_arrived_.notify_one();
  }

  const SocketEngineOptions options_;
  const Descriptor listener_;
  WakeUp wake_up_;

  std::mutex mutex_;  // what follows; peers_ is changed by the thread alone
  std::condition_variable command_arrived_;
  std::vector<Command> inbox_;
  std::list<Peer> peers_;
  std::optional<EngineEvent> hello_;
  std::optional<EngineEvent> ready_;
  std::optional<EngineConfig> config_;
  bool closed_ = false;
  bool woken_ = false;

  // The thread's own.
  std::vector<std::string> frames_;
  std::vector<pollfd> polled_;
  std::uint64_t next_slot_ = 1;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace

std::unique_ptr<EngineEnd> make_socket_engine_end(const SocketAddress& address,
                                                  SocketEngineOptions options) {
  auto listener = listen_at(address);
  if (!listener) throw Failure(listener.error());
  log::info("engine.listening", {{"address", address.text()}, {"port", port_of(*listener)}});
  return std::make_unique<SocketEngineEnd>(std::move(*listener), std::move(options));
}

}  // namespace quire
