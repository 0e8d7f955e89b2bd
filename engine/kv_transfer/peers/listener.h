#pragma once
// Ports at which other engines and strangers ask: how they are opened, and how whoever comes is let
// in. Belongs to the transfer's thread.

#include <boost/asio/any_io_executor.hpp>
#include <functional>

#include "base/async.h"
#include "base/task_group.h"
#include "engine/wire/socket_address.h"

namespace quire {

// Listens at an address. Throws Failure that names KvTransferConfig::listen where it cannot.
Descriptor listen_for_peers(const SocketAddress& address);

SocketAddress with_port(SocketAddress address, std::uint16_t port);

struct PeerDoor {
  std::function<awaitable<void>()> make_place;  // awaited before a connection is accepted
  // Speaks with one peer. What KvLost it throws is logged: a peer that left in debug, others as
  // refused.
  std::function<awaitable<void>(Descriptor)> serve;
};

// Lets in whoever connects, each as one of `sessions`, until it is cancelled.
awaitable<void> accept_peers(asio::any_io_executor executor, const Descriptor& listener,
                             TaskGroup& sessions, PeerDoor door);

}  // namespace quire
