#pragma once
// Who is at the other end of a socket, as a number.

#include <cstdint>

namespace quire {

// Of an IPv4 address or an IPv6 network of 64 bits, of which one host has all; 0 for a Unix socket or
// a closed connection.
std::uint64_t address_hash(int socket);

}  // namespace quire
