#pragma once
// The flags by which a server and engines in other processes reach and trust each other; of `quire
// serve` and `quire engine` alike.

#include <string>
#include <vector>

#include "engine/wire/socket_channel.h"

namespace CLI {
class App;
}

namespace quire {

struct EngineLinkFlags {
  std::string secret_file;
  TlsContext::Files tls;
  bool plaintext = false;  // between machines too
};

void add_engine_link_flags(CLI::App& app, EngineLinkFlags& flags);

// What the flags mean for these addresses; secret and TLS are filled in. Errors say which flag is
// missing or has no effect.
Result<SocketOptions> engine_link(const EngineLinkFlags& flags,
                                  const std::vector<SocketAddress>& dialled,
                                  const std::vector<SocketAddress>& listened);

// Logs what other machines may read.
void warn_if_plaintext(const SocketOptions& link, const std::vector<SocketAddress>& dialled,
                       const std::vector<SocketAddress>& listened);

}  // namespace quire
