#include "engine/kv_transfer/peers/listener.h"

#include <unistd.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/kv_transfer/plane/data_plane.h"
#include "engine/kv_transfer/peers/refusals.h"

namespace quire {
namespace {

constexpr std::chrono::milliseconds kPauseForNothing{50};

awaitable<void> log_losses(awaitable<void> session) {
  try {
    co_await std::move(session);
  } catch (const KvLost& lost) {
    if (lost.reason() == KvLossReason::peer_lost) {
      log::debug("kv_transfer.connection_ended", {{"because", lost.what()}});
    } else {
      log_refused(lost.what());
    }
  }
}

}  // namespace

Descriptor listen_for_peers(const SocketAddress& address) {
  auto listener = listen_at(address);
  if (listener) return std::move(*listener);
  throw Failure(Error{ErrorCode::unavailable,
                      "KvTransferConfig::listen: " + listener.error().detail,
                      "KvTransferConfig::listen"});
}

SocketAddress with_port(SocketAddress address, std::uint16_t port) {
  address.port = port;
  return address;
}

awaitable<void> accept_peers(asio::any_io_executor executor, const Descriptor& listener,
                             TaskGroup& sessions, PeerDoor door) {
  asio::posix::stream_descriptor knock(executor, ::dup(listener.get()));
  while (true) {
    co_await knock.async_wait(asio::posix::stream_descriptor::wait_read, asio::use_awaitable);
    co_await door.make_place();
    Descriptor socket = accept_from(listener);
    if (!socket) {  // the other end left, or there are no descriptors
      co_await sleep_for(kPauseForNothing);
      continue;
    }
    sessions.spawn(log_losses(door.serve(std::move(socket))));
  }
}

}  // namespace quire
