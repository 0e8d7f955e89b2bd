#include "engine/wire/socket_source.h"

#include <utility>

#include "base/error.h"

namespace quire {

Result<WireConnection> dial(const SocketAddress& address, WireConnection::Role role,
                            const SocketOptions& options) {
  auto socket = begin_connect(address);
  if (!socket) return socket.error();
  std::unique_ptr<TlsStream> tls;
  if (options.tls != nullptr && !address.is_unix())
    tls = std::make_unique<TlsStream>(*options.tls, socket->get(), address.host);
  return WireConnection(std::move(*socket), role, options.secret, std::move(tls));
}

std::unique_ptr<WireConnection> accept_connection(const Descriptor& listener, bool is_unix,
                                                  WireConnection::Role role,
                                                  const SocketOptions& options) {
  Descriptor socket = accept_from(listener);
  if (!socket) return nullptr;
  std::unique_ptr<TlsStream> tls;
  if (options.tls != nullptr && !is_unix)
    tls = std::make_unique<TlsStream>(*options.tls, socket.get(), "");
  return std::make_unique<WireConnection>(std::move(socket), role, options.secret, std::move(tls));
}

}  // namespace quire
