#include "engine/kv_transfer/plane/begin_line.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

#include "engine/kv_transfer/plane/data_plane.h"

namespace quire {

awaitable<Descriptor> begin_line(SocketAddress address, std::chrono::nanoseconds silence) {
  constexpr std::chrono::milliseconds kGlance{5};
  const auto end = std::chrono::steady_clock::now() + silence;
  while (true) {
    auto socket = begin_connect(address, std::chrono::milliseconds(0));
    if (socket) co_return std::move(*socket);
    const Error& error = socket.error();
    if (error.code != ErrorCode::overloaded) throw KvLost(KvLossReason::peer_lost, error.detail);
    const bool is_silent = std::chrono::steady_clock::now() >= end;
    if (is_silent) throw KvLost(KvLossReason::peer_lost, error.detail, is_silent);
    co_await sleep_for(kGlance);
  }
}

}  // namespace quire
