#pragma once
// From whom this engine may fetch, whatever a request says: --kv-peer. Immutable.

#include <set>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/wire/socket_address.h"

namespace quire {

class PeerList {
 public:
  PeerList() = default;
  // Looks names up, so that a peer that says 127.0.0.1 is also "localhost". May take as long as the
  // system's resolver does: once, at start.
  PeerList(const std::vector<KvPeer>& peers);  // NOLINT: a list of them is one

  bool empty() const { return entries_.empty(); }
  bool are_here() const;  // all on this machine
  bool allows(const SocketAddress& address) const;
  const std::string& names() const { return names_; }  // for people

 private:
  struct Entry {
    SocketAddress address;        // port 0: any
    std::set<std::string> found;  // numeric addresses of its host
  };
  std::vector<Entry> entries_;
  std::string names_;
};

// In the one form that numbers of hosts have here; empty: the host is a name.
std::string numeric_host(const std::string& host);
// Addresses of a connection's ends, as numbers.
std::string local_host(int socket);
std::string remote_host(int socket);

}  // namespace quire
