#include "engine/kv_transfer/peers/peer_list.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <strings.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "base/log.h"

namespace quire {
namespace {

std::string text_of(int family, const void* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(family, address, text.data(), text.size());
  return text.data();
}

// IPv4 that is written as IPv6 is IPv4.
std::string text_of(const in6_addr& address) {
  if (IN6_IS_ADDR_V4MAPPED(&address)) return text_of(AF_INET, address.s6_addr + 12);
  return text_of(AF_INET6, &address);
}

std::set<std::string> look_up(const std::string& host) {
  if (const std::string number = numeric_host(host); !number.empty()) return {number};
  if (host == "localhost") return {"127.0.0.1", "::1"};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (const int failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &first); failed != 0) {
    log::warn("kv_transfer.peer_not_found", {{"peer", host}, {"because", gai_strerror(failed)}});
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(first, freeaddrinfo);
  std::set<std::string> found;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    if (one->ai_family == AF_INET)
      found.insert(text_of(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ai_addr)->sin_addr));
    if (one->ai_family == AF_INET6)
      found.insert(text_of(reinterpret_cast<const sockaddr_in6*>(one->ai_addr)->sin6_addr));
  }
  return found;
}

template <class Name>
std::string host_of(int socket, Name name) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* const pointer = reinterpret_cast<sockaddr*>(&address);
  std::array<char, NI_MAXHOST> text{};
  if (name(socket, pointer, &size) != 0 ||
      ::getnameinfo(pointer, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return numeric_host(text.data());
}

}  // namespace

std::string local_host(int socket) { return host_of(socket, ::getsockname); }
std::string remote_host(int socket) { return host_of(socket, ::getpeername); }

std::string numeric_host(const std::string& host) {
  in_addr four{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return text_of(AF_INET, &four);
  in6_addr six{};
  if (::inet_pton(AF_INET6, host.c_str(), &six) == 1) return text_of(six);
  return "";
}

PeerList::PeerList(const std::vector<KvPeer>& peers) {
  for (const KvPeer& peer : peers) {
    names_ += (names_.empty() ? "" : ", ") + peer.address;
    Entry entry;
    if (const auto parsed = parse_socket_address(peer.address)) {
      entry.address = *parsed;
    } else {
      entry.address.host = peer.address;
    }
    if (!entry.address.is_unix()) entry.found = look_up(entry.address.host);
    entries_.push_back(std::move(entry));
  }
}

bool PeerList::are_here() const {
  const auto is_loopback = [](const std::string& number) {
    return number == "::1" || number.starts_with("127.");
  };
  return std::ranges::all_of(entries_, [&](const Entry& entry) {
    return entry.address.is_unix() ||
           (!entry.found.empty() && std::ranges::all_of(entry.found, is_loopback));
  });
}

bool PeerList::allows(const SocketAddress& address) const {
  const std::string number = address.host == "localhost" ? "127.0.0.1" : numeric_host(address.host);
  return std::ranges::any_of(entries_, [&](const Entry& entry) {
    if (entry.address.is_unix() || address.is_unix())
      return entry.address.path == address.path && address.is_unix();
    if (entry.address.port != 0 && entry.address.port != address.port) return false;
    return ::strcasecmp(entry.address.host.c_str(), address.host.c_str()) == 0 ||
           entry.found.contains(number);
  });
}

}  // namespace quire
