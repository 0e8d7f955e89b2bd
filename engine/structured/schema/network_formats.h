#pragma once
// Patterns of IP networks and interfaces, as Python's ipaddress has them.

#include <string>

namespace quire::structured {

// What is beyond the prefix is zero. `address`: the pattern of one address.
std::string ipv4_network(const std::string& address);
std::string ipv6_network(const std::string& address);
// An address, with or without the length of its network's prefix.
std::string ipv4_interface(const std::string& address);
std::string ipv6_interface(const std::string& address);

}  // namespace quire::structured
