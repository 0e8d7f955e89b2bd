#pragma once
// Who is at the other end of a socket, as a number.

#include <cstdint>

namespace quire {

// A hash of the peer's IPv4 address, or of its IPv6 network of 64 bits, which one host has; 0 for
// a Unix socket or a closed connection.
std::uint64_t address_hash(int socket);

}  // namespace quire
