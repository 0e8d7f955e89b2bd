#pragma once
// The two ends of a line between processes, over TCP or a Unix socket. Each has one thread of its
// own, which encodes, sends, receives and decodes; neither end ever waits for the other.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "engine/wire/channel.h"
#include "engine/wire/socket_address.h"

namespace quire {

struct SocketOptions {
  std::string secret = {};  // equal on both sides
  ChannelLimits limits = {.max_commands = 4096, .max_events = 64};
  // A peer that says nothing for so long is given up.
  std::chrono::milliseconds silence{std::chrono::seconds(10)};
};

// The front end's: connects, and connects again whenever the connection is lost. What was lost is
// told as EngineDead; Hello begins anew. send() takes no request while there is no connection.
std::unique_ptr<ClientEnd> make_socket_client_end(SocketAddress address, SocketOptions options);

// The engine's: listens for front ends, any number of them, of which the first configures the
// engine; another one's configuration must be equal. Requests of a front end that leaves are
// aborted. localize() replaces what the engine's own machine decides: paths, device, threads.
// Throws Failure when it cannot listen.
struct SocketEngineOptions {
  SocketOptions socket = {};
  std::function<void(EngineConfig&)> localize = {};
};
std::unique_ptr<EngineEnd> make_socket_engine_end(const SocketAddress& address,
                                                  SocketEngineOptions options);

}  // namespace quire
