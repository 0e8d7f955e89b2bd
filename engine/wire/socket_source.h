#pragma once
// Where the next connection of a line comes from: a peer that is dialled, or one that dials.

#include <memory>

#include "engine/wire/connection.h"
#include "engine/wire/socket_channel.h"

namespace quire {

// Begins to connect; TLS too where the options have it and the address is no Unix socket.
Result<WireConnection> dial(const SocketAddress& address, WireConnection::Role role,
                            const SocketOptions& options);
// Of somebody who has dialled. Empty: nobody has.
std::unique_ptr<WireConnection> accept_connection(const Descriptor& listener, bool is_unix,
                                                  WireConnection::Role role,
                                                  const SocketOptions& options);

}  // namespace quire
