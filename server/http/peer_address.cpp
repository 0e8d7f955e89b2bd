#include "server/http/peer_address.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <string_view>

namespace quire {

std::uint64_t address_hash(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  char bytes[8] = {};
  if (address.ss_family == AF_INET) {
    std::memcpy(bytes, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
  } else if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    const bool is_four = IN6_IS_ADDR_V4MAPPED(&six);
    is_four ? std::memcpy(bytes, six.s6_addr + 12, 4) : std::memcpy(bytes, six.s6_addr, 8);
  } else {
    return 0;
  }
  return std::hash<std::string_view>()({bytes, sizeof bytes});
}

}  // namespace quire
