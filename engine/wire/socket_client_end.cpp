// The front end's side of a socket: engine/wire/socket_channel.h.

#include <poll.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/wire/connection.h"
#include "engine/wire/event_mailbox.h"
#include "engine/wire/lobby.h"
#include "engine/wire/pieces.h"
#include "engine/wire/socket_channel.h"
#include "engine/wire/socket_source.h"
#include "engine/wire/wake_up.h"

namespace quire {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kOpening{5000};  // to connect and prove the secret
constexpr milliseconds kFirstPause{50};
constexpr milliseconds kLongestPause{2000};
constexpr std::size_t kBytesAhead = 1 << 20;  // encoded, not yet sent

class SocketClientEnd final : public ClientEnd {
 public:
  // lobby: where the engine comes who dials; null: the address is dialled.
  SocketClientEnd(SocketAddress address, std::shared_ptr<Lobby> lobby, SocketOptions options)
      : address_(std::move(address)),
        lobby_(std::move(lobby)),
        options_(std::move(options)),
        events_(options_.limits.max_events) {
    thread_ = std::thread([this] { run(); });
  }
  ~SocketClientEnd() override {
    close();
    thread_.join();
  }

  bool send(Command& command) override {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || !connected_) return false;
      if (std::holds_alternative<Configure>(command)) configured_ = true;
      // What comes before is meant for a former life of the engine.
      if (!configured_) return !std::holds_alternative<AddRequest>(command);
      if (leaving_ && std::holds_alternative<AddRequest>(command)) return false;
      if (needs_room(command) && outbox_.size() >= options_.limits.max_commands) return false;
      outbox_.push_back(std::move(command));
      if (outbox_.size() > 1) return true;
    }
    wake_up_.wake();
    return true;
  }

  void on_events(std::function<void()> notify) override { events_.on_events(std::move(notify)); }

  // True: what is lost may come back.
  bool take(std::vector<EngineEvent>& events) override { return events_.take(events); }

  void close() override {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    events_.close();
    wake_up_.wake();
  }

 private:
  void run() {
    auto pause = kFirstPause;
    while (!is_closed()) {
      bool was_open = false;
      const Error why = converse(was_open);
      if (was_open) pause = kFirstPause;
      if (was_open || (why.code == ErrorCode::unauthorized && lobby_ == nullptr)) {
        deliver(EngineDead{{}, address_.text() + ": " + why.detail});
        said_.clear();
      } else if (said_ != why.detail && (said_.empty() || why.code != ErrorCode::overloaded)) {
        said_ = why.detail;
        deliver(StartupProgress{"waiting for " + address_.text() + ": " + why.detail, 0});
      }
      if (lobby_ != nullptr) continue;
      wait(-1, 0, pause);
      pause = std::min(pause * 2, kLongestPause);
    }
  }

  // From connecting to the end of the connection, and why it ended.
  Error converse(bool& was_open) {
    auto peer = lobby_ != nullptr ? await_peer() : connect();
    if (!peer) return peer.error();
    const Error why = exchange(*peer->connection, std::move(peer->frames), was_open);
    const std::lock_guard lock(mutex_);
    connected_ = configured_ = leaving_ = false;
    outbox_.clear();
    return why;
  }

  Result<Lobby::Guest> connect() {
    auto connection = dial(address_, WireConnection::Role::front_end, options_);
    if (!connection) return connection.error();
    wait(connection->descriptor(), POLLOUT, kOpening);
    if (const std::string error = connect_error(connection->descriptor()); !error.empty())
      return Error{ErrorCode::unavailable, error, {}};
    return Lobby::Guest{std::make_unique<WireConnection>(std::move(*connection))};
  }

  // Others may wait in the same lobby, and one of them gets who has come.
  Result<Lobby::Guest> await_peer() {
    auto guest = lobby_->next(wake_up_.descriptor(), kLongestPause);
    if (!guest) wake_up_.reset();
    return guest;
  }

  // `frames`: what the peer has said already.
  Error exchange(WireConnection& connection, std::vector<std::string> frames, bool& was_open) {
    const auto begun = Clock::now();
    const milliseconds interval = options_.ping_interval();
    auto next_ping = begun, listened = begun, listens_since = begun;
    PieceJoiner pieces;
    bool has_words = !frames.empty();
    while (!is_closed()) {
      const auto now = Clock::now();
      if (!connection.is_open() && now - begun > kOpening)
        return {ErrorCode::timeout, "the peer does not answer as an engine would", {}};
      // While this side was busy or stood still, nobody was silent.
      if (now - std::exchange(listened, now) > 2 * interval) listens_since = now;
      if (connection.is_open() &&
          now - std::max(connection.last_heard(), listens_since) > options_.silence) {
        if (options_.on_silence) options_.on_silence();
        return {ErrorCode::timeout,
                "the engine has not answered for " + std::to_string(options_.silence.count()) +
                    " ms (SocketOptions::silence)",
                {}};
      }
      if (connection.is_open() && now >= next_ping) {
        connection.queue(kPing);
        next_ping = now + interval;
      }
      queue_commands(connection);
      const auto written = connection.write();
      if (written && !has_words)
        wait(connection.descriptor(),
             static_cast<short>(POLLIN | (connection.wants_write() ? POLLOUT : 0)), interval);
      // What the peer said before it closed the line is still there to be read.
      if (!std::exchange(has_words, false)) frames.clear();
      const auto read = connection.read(frames);
      if (connection.is_open() && !std::exchange(was_open, true)) {
        const std::lock_guard lock(mutex_);
        connected_ = true;
      }
      for (const std::string& frame : frames) {
        auto event = pieces.decode(frame, connection.opened_at());
        if (!event) return event.error();
        if (*event) deliver(std::move(**event));
        if (frame != kLeaving) continue;
        {
          const std::lock_guard lock(mutex_);
          leaving_ = true;
        }
        deliver(StartupProgress{"was asked to end, and finishes what runs", 0});
      }
      // A refusal stands, whatever a line says that is read after it.
      if (!written && written.error().code == ErrorCode::unauthorized) return written.error();
      if (!read) return read.error();
      if (!written) return written.error();
    }
    return {ErrorCode::cancelled, "closed", {}};
  }

  void queue_commands(WireConnection& connection) {
    if (!connection.is_open() || connection.queued_bytes() > kBytesAhead) return;
    {
      const std::lock_guard lock(mutex_);
      sending_.swap(outbox_);
    }
    for (const Command& command : sending_)
      connection.queue(encode(command, connection.opened_at()));
    sending_.clear();
  }

  void deliver(EngineEvent event) {
    if (const auto notify = events_.put(std::move(event))) notify();
  }

  bool is_closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

  void wait(int descriptor, short events, milliseconds at_most) {
    std::array<pollfd, 2> polled{pollfd{wake_up_.descriptor(), POLLIN, 0},
                                 pollfd{descriptor, events, 0}};
    ::poll(polled.data(), polled.size(), static_cast<int>(at_most.count()));
    if (polled[0].revents != 0) wake_up_.reset();
  }

  const SocketAddress address_;
  const std::shared_ptr<Lobby> lobby_;
  const SocketOptions options_;
  WakeUp wake_up_;
  EventMailbox events_;  // never ends

  std::mutex mutex_;  // what follows
  std::vector<Command> outbox_;
  bool connected_ = false;
  bool configured_ = false;  // on this connection
  bool leaving_ = false;     // the engine is, and takes nothing new
  bool closed_ = false;

  // The thread's own.
  std::vector<Command> sending_;
  std::string said_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace

std::unique_ptr<ClientEnd> make_socket_client_end(SocketAddress address, SocketOptions options) {
  return std::make_unique<SocketClientEnd>(std::move(address), nullptr, std::move(options));
}

std::vector<std::unique_ptr<ClientEnd>> make_listening_client_ends(const SocketAddress& address,
                                                                   int count,
                                                                   const SocketOptions& options) {
  auto listening = listen_at(address);
  if (!listening) throw Failure(listening.error());
  log::info("engines.awaited",
            {{"address", address.text()}, {"port", port_of(*listening)}, {"count", count}});
  const auto lobby = std::make_shared<Lobby>(std::move(*listening), address, options);
  std::vector<std::unique_ptr<ClientEnd>> ends;
  for (int rank = 0; rank < count; ++rank)
    ends.push_back(std::make_unique<SocketClientEnd>(address, lobby, options));
  return ends;
}

}  // namespace quire
