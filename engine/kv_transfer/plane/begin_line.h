#pragma once
// How a connection to another engine begins. Belongs to the transfer's thread.

#include <chrono>

#include "base/async.h"
#include "engine/wire/socket_address.h"

namespace quire {

// A socket that connects. A name is waited for, at most `silence`, without holding the thread up.
// Throws KvLost: peer_lost.
awaitable<Descriptor> begin_line(SocketAddress address, std::chrono::nanoseconds silence);

}  // namespace quire
