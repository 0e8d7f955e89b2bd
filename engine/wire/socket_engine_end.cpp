// The engine's side of its sockets: engine/wire/socket_channel.h.

#include <poll.h>

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/wire/config_difference.h"
#include "engine/wire/front_end_peer.h"
#include "engine/wire/socket_channel.h"
#include "engine/wire/socket_file.h"
#include "engine/wire/socket_source.h"
#include "engine/wire/strangers.h"
#include "engine/wire/wake_up.h"

namespace quire {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kOpening{5000};
constexpr milliseconds kGlance{500};
constexpr milliseconds kLastWords{1000};  // to send what waits when the engine ends
constexpr milliseconds kFirstPause{50};   // before an address is dialled again
constexpr milliseconds kLongestPause{2000};
constexpr std::size_t kBytesAhead = 4 << 20;  // encoded for a peer, not yet sent
constexpr std::size_t kMaxPeers = 64;  // who have proved the secret

// An address that is dialled until a front end is there, and again when it has gone.
struct Dial {
  SocketAddress address;
  bool has_peer = false;
  Clock::time_point next = Clock::now();
  milliseconds pause = kFirstPause;
  std::string said = {};  // why it failed, once for each reason

  void greeted() { pause = kFirstPause, said.clear(); }
};

class End final : public SocketEngineEnd {
 public:
  End(std::optional<Descriptor> listener, SocketEngineOptions options)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        file_(options_.listen.value_or(SocketAddress())),
        strangers_(WireConnection::Role::engine, options_.listen && options_.listen->is_unix(),
                   options_.socket) {
    for (const SocketAddress& address : options_.dial) dials_.push_back({address});
    thread_ = std::thread([this] { run(); });
  }
  ~End() override {
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
        for (FrontEndPeer& peer : peers_) {
          if (peer.configured) peer.publish(*step, options_.socket.limits.max_events);
        }
      } else if (const auto* report = std::get_if<BlockReport>(&event)) {
        for (FrontEndPeer& peer : peers_) {
          if (peer.configured) peer.publish(*report);
        }
      } else if (auto* hello = std::get_if<Hello>(&event)) {
        hello_ = std::move(*hello);
      } else {
        if (std::holds_alternative<Ready>(event)) ready_ = event;
        tell_all(event);
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

  void leave() override {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(leaving_, true)) return;
      for (FrontEndPeer& peer : peers_) peer.says_leaving = peer.configured;
    }
    wake_up_.wake();
  }

  int num_live() override {
    const std::lock_guard lock(mutex_);
    std::size_t sum = 0;
    for (const FrontEndPeer& peer : peers_) sum += peer.num_live();
    return static_cast<int>(sum);
  }

 private:
  bool take_locked(std::vector<Command>& commands) {
    std::ranges::move(inbox_, std::back_inserter(commands));
    inbox_.clear();
    return !closed_;
  }

  void tell_all(const EngineEvent& event) {
    for (FrontEndPeer& peer : peers_) {
      if (peer.configured) peer.publish(event);
    }
  }

  void run() {
    std::optional<Clock::time_point> end;
    while (true) {
      bool takes_peers = true;
      {
        const std::lock_guard lock(mutex_);
        if (closed_ && !end) end = Clock::now() + kLastWords;
        takes_peers = !closed_ && !leaving_;
      }
      if (takes_peers) {
        dial_due();
        greet_strangers();
      } else {
        strangers_.clear();
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
      wait(takes_peers);
    }
  }

  void wait(bool takes_peers) {
    const bool listens = takes_peers && listener_;
    const bool can_accept = listens && !strangers_.is_out_of_descriptors();
    polled_.assign({pollfd{wake_up_.descriptor(), POLLIN, 0},
                    pollfd{can_accept ? listener_->get() : -1, POLLIN, 0}});
    strangers_.add_to(polled_);
    auto until = Clock::now() + kGlance;
    for (const FrontEndPeer& peer : peers_) {
      const bool writes = peer.connection.wants_write();
      polled_.push_back(
          {peer.connection.descriptor(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
    }
    for (const Dial& dial : dials_) {
      if (takes_peers && !dial.has_peer) until = std::min(until, dial.next);
    }
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    ::poll(polled_.data(), polled_.size(),
           static_cast<int>(strangers_.patience(std::max(left, milliseconds(1))).count()));
    if (polled_[0].revents != 0) wake_up_.reset();
    if (polled_[1].revents != 0 || (listens && !can_accept)) strangers_.accept_all(*listener_);
  }

  void greet_strangers() {
    for (Strangers::One& one : strangers_.greet()) {
      if (peers_.size() >= kMaxPeers) {
        log::warn("engine.front_end_refused",
                  {{"engine", options_.rank},
                   {"because", std::to_string(kMaxPeers) + " front ends have it"}});
        continue;  // closes it
      }
      add_peer(std::move(*one.connection), -1).frames = std::move(one.frames);
    }
  }

  void dial_due() {
    for (std::size_t i = 0; i < dials_.size(); ++i) {
      Dial& one = dials_[i];
      if (one.has_peer || Clock::now() < one.next) continue;
      auto connection = dial(one.address, WireConnection::Role::engine, options_.socket);
      if (connection) {
        one.has_peer = true;
        add_peer(std::move(*connection), static_cast<int>(i));
      } else {
        // A name that is still looked up is no news yet.
        const Error& error = connection.error();
        lost(one, error.code == ErrorCode::overloaded ? one.said : error.detail);
      }
    }
  }

  void lost(Dial& dial, std::string why) {  // a copy: it may be what was said before
    dial.has_peer = false;
    dial.next = Clock::now() + dial.pause;
    dial.pause = std::min(dial.pause * 2, kLongestPause);
    if (std::exchange(dial.said, why) == why) return;
    log::warn("engine.front_end_not_reached", {{"engine", options_.rank},
                                               {"address", dial.address.text()},
                                               {"because", why}});
  }

  FrontEndPeer& add_peer(WireConnection connection, int dialled) {
    // Requests of a peer that has gone may still be in the engine: its slot is taken again last.
    const auto is_taken = [this](std::uint64_t slot) {
      return std::ranges::any_of(peers_, [slot](const auto& peer) { return peer.slot == slot; });
    };
    do {
      last_slot_ = (last_slot_ + 1) % FrontEndPeer::kNumSlots;
    } while (is_taken(last_slot_));
    const std::lock_guard lock(mutex_);
    FrontEndPeer& peer = peers_.emplace_back(std::move(connection), last_slot_);
    peer.dialled = dialled;
    return peer;
  }

  // What can be done for a peer without waiting. Error: it has gone, or must.
  Result<void> serve(FrontEndPeer& peer) {
    WireConnection& connection = peer.connection;
    if (!connection.is_open()) {
      if (auto ok = connection.write(); !ok) return ok;  // first, as to strangers
    }
    frames_ = std::exchange(peer.frames, {});
    const auto read = connection.read(frames_);
    for (const std::string& frame : frames_) {
      if (frame == kPing) {
        connection.queue(kPong);
        continue;
      }
      if (frame == kStandBy) {
        log::info("engine.stands_by",
                  {{"engine", options_.rank}, {"because", "the server has its engines"}});
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
      return Error{ErrorCode::timeout, "the front end has fallen silent", {}};
    queue_events(peer);
    const auto written = connection.write();
    if (connection.queued_bytes() == 0 && !connection.wants_write()) {
      const std::lock_guard lock(mutex_);
      peer.all_sent();
    }
    return written;
  }

  void queue_events(FrontEndPeer& peer) {
    if (peer.connection.queued_bytes() >= kBytesAhead) return;
    std::vector<EngineEvent> events;
    bool leaves = false;
    {
      const std::lock_guard lock(mutex_);
      if (!peer.greeted && hello_) {
        events.emplace_back(*hello_);
        peer.greeted = true;
        if (peer.dialled >= 0) dials_[static_cast<std::size_t>(peer.dialled)].greeted();
      }
      std::ranges::move(peer.take_outbox(), std::back_inserter(events));
      leaves = std::exchange(peer.says_leaving, false);
    }
    for (EngineEvent& event : events) peer.queue(std::move(event));
    if (leaves) peer.connection.queue(kLeaving);
  }

  void handle(FrontEndPeer& peer, Command command) {
    {
      const std::lock_guard lock(mutex_);
      if (auto* configure = std::get_if<Configure>(&command)) {
        if (!configure_from(peer, *configure)) return;
      } else if (auto* add = std::get_if<AddRequest>(&command)) {
        if (!ready_ || !peer.configured) return;
        add->id = peer.begin(*add);
      } else if (auto* abort = std::get_if<AbortRequest>(&command)) {
        const auto id = peer.end(*abort);
        if (!id) return;
        abort->id = *id;
      }
      inbox_.push_back(std::move(command));
    }
    command_arrived_.notify_one();
  }

  // True: the engine has yet to be configured, with this.
  bool configure_from(FrontEndPeer& peer, Configure& configure) {
    if (options_.localize) options_.localize(configure.config);
    if (peer.configured) return false;
    if (config_) {
      const std::string field = first_difference(*config_, configure.config);
      if (!field.empty()) {
        peer.publish(
            EngineDead{{}, "the engine runs already for another front end, with another " + field});
        peer.leaving = true;
        log::warn("engine.front_end_refused",
                  {{"engine", options_.rank}, {"because", "another " + field}});
        return false;
      }
    }
    peer.configured = true;
    if (ready_) peer.publish(*ready_);
    peer.says_leaving = leaving_;
    if (config_) return false;
    config_ = configure.config;
    return true;
  }

  void drop(FrontEndPeer& peer, const std::string& why) {
    if (peer.dialled >= 0) {
      lost(dials_[static_cast<std::size_t>(peer.dialled)], why);
    } else if (!why.empty()) {
      log::warn("engine.front_end_gone", {{"engine", options_.rank}, {"because", why}});
    }
    {
      const std::lock_guard lock(mutex_);
      for (const std::uint64_t id : peer.live()) inbox_.emplace_back(AbortRequest{RequestId{id}});
    }
    command_arrived_.notify_one();
  }

  const SocketEngineOptions options_;
  const std::optional<Descriptor> listener_;
  const SocketFile file_;
  WakeUp wake_up_;

  std::mutex mutex_;  // what follows; peers_ is changed by the thread alone
  std::condition_variable command_arrived_;
  std::vector<Command> inbox_;
  std::list<FrontEndPeer> peers_;
  std::optional<Hello> hello_;
  std::optional<EngineEvent> ready_;
  std::optional<EngineConfig> config_;
  bool leaving_ = false;
  bool closed_ = false;
  bool woken_ = false;

  // The thread's own.
  std::vector<Dial> dials_;
  Strangers strangers_;
  std::vector<std::string> frames_;
  std::vector<pollfd> polled_;
  std::uint64_t last_slot_ = 0;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace

std::unique_ptr<SocketEngineEnd> make_socket_engine_end(SocketEngineOptions options) {
  std::optional<Descriptor> listener;
  if (options.listen) {
    auto listening = listen_at(*options.listen);
    if (!listening) throw Failure(listening.error());
    log::info("engine.listening", {{"engine", options.rank},
                                   {"address", options.listen->text()},
                                   {"port", port_of(*listening)}});
    listener = std::move(*listening);
  }
  return std::make_unique<End>(std::move(listener), std::move(options));
}

}  // namespace quire
