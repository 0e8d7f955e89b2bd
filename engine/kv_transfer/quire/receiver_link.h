#pragma once
// What a receiver's files share: its connections, and what it has to tell over them.

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/kv_transfer/memory/shared_region.h"
#include "engine/kv_transfer/quire/frame_link.h"
#include "engine/kv_transfer/quire/receiver.h"

namespace quire {

// A connection to a peer that has said who it is.
struct KvReceiver::Link {
  Link(asio::any_io_executor executor, SocketAddress a, Descriptor socket,
       std::chrono::nanoseconds silence)
      : address(std::move(a)), line(std::move(executor), std::move(socket), silence) {}

  const SocketAddress address;
  FrameLink line;
  KvWelcome peer;
  std::shared_ptr<const MappedRegion> memory = nullptr;  // of the peer; null: over the line
};

// What a peer is told one after the other, so that many do not make many connections.
struct KvReceiver::Outbox {
  struct Message {
    KvFrameType type;
    std::string text;
    std::string engine;  // for no other at this address
  };
  std::vector<Message> messages = {};
};

}  // namespace quire
