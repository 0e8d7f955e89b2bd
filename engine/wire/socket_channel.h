#pragma once
// The two ends of a line between processes, over TCP or a Unix socket. Each has one thread of its
// own, which encodes, sends, receives and decodes; neither end ever waits for the other.

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/wire/channel.h"
#include "engine/wire/socket_address.h"
#include "engine/wire/tls.h"

namespace quire {

struct SocketOptions {
  std::string secret = {};  // equal on both sides
  ChannelLimits limits = {.max_commands = 4096, .max_events = 64};
  // A peer that says nothing for so long is given up.
  std::chrono::milliseconds silence{std::chrono::seconds(10)};
  // How often a front end asks for a sign of life. An engine, which has a patience of its own,
  // gives up who does not: however long this side waits, it asks.
  std::chrono::milliseconds ping_interval() const {
    using std::chrono::milliseconds;
    return std::clamp<milliseconds>(silence / 4, milliseconds(1), milliseconds(5000));
  }
  // Called on the front end's side when it gives an engine up that says nothing: its process may hang.
  std::function<void()> on_silence = {};
  // Of TCP; null: plain. What crosses a Unix socket stays on this machine and is never encrypted.
  std::shared_ptr<const TlsContext> tls = {};
};

// The front end's: connects, and connects again whenever the connection is lost. What was lost is
// told as EngineDead; Hello begins anew. send() takes no request while there is no connection, before
// Configure on this one, or when the engine has been asked to end.
std::unique_ptr<ClientEnd> make_socket_client_end(SocketAddress address, SocketOptions options);

// The same for engines that dial: one address, and as many ends as engines are expected, each with
// whichever engine dials next; more engines than ends wait their turn. Throws Failure when it
// cannot listen.
std::vector<std::unique_ptr<ClientEnd>> make_listening_client_ends(const SocketAddress& address,
                                                                   int count,
                                                                   const SocketOptions& options);

// The engine's: for front ends, any number of them, of which the first configures the engine;
// another one's configuration must be equal. Requests of a front end that leaves are aborted.
class SocketEngineEnd : public EngineEnd {
 public:
  // From here on front ends are told to go elsewhere, and new ones are not taken. What runs goes
  // on. Any thread, as the other.
  virtual void leave() = 0;
  // Requests that have not ended, or whose end has yet to be sent.
  virtual int num_live() = 0;
};

struct SocketEngineOptions {
  SocketOptions socket = {};
  std::optional<SocketAddress> listen = {};  // where front ends dial
  std::vector<SocketAddress> dial = {};      // where they listen; dialled again when lost
  int rank = 0;                              // for the log
  // Replaces what the engine's own machine decides: paths, device, threads.
  std::function<void(EngineConfig&)> localize = {};
};
// Throws Failure when it cannot listen.
std::unique_ptr<SocketEngineEnd> make_socket_engine_end(SocketEngineOptions options);

}  // namespace quire
