#pragma once
// The side that keeps finished prefills: answers whoever connects. Belongs to the transfer's
// thread.

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "base/async.h"
#include "base/task_group.h"
#include "engine/kv_transfer/plane/data_plane.h"
#include "engine/kv_transfer/content/geometry.h"
#include "engine/kv_transfer/memory/kept_prefills.h"
#include "engine/kv_transfer/plane/kept_waits.h"
#include "engine/kv_transfer/quire/push_waits.h"
#include "engine/wire/socket_address.h"
#include "engine/wire/socket_file.h"

namespace quire {

class FrameLink;

struct KvSenderOptions {
  std::string engine;  // what this start of the engine is called
  KvGeometry geometry;
  std::chrono::nanoseconds silence = std::chrono::seconds(10);
  std::chrono::nanoseconds idle = std::chrono::minutes(10);  // of a connection that asks nothing
  std::size_t max_connections = 256;  // beyond it one that asks nothing ends for a new one
  // Called on the transfer's thread when counts or kept prefills are others: nobody takes a step
  // for that, and what is reported would stay as it was.
  std::function<void()> changed = [] {};
};

class KvSender {
 public:
  // Listens at once; throws Failure where it cannot.
  KvSender(asio::any_io_executor executor, const SocketAddress& address, KvSenderOptions options,
           KeptPrefills& kept);
  ~KvSender();

  std::uint16_t port() const { return port_of(listener_); }
  const KvTrafficCounts& counts() const { return counts_; }

  // Both run until they are cancelled.
  awaitable<void> accept(TaskGroup& sessions);
  awaitable<void> expire();

 private:
  struct Session;
  awaitable<void> make_place();
  void send_one_away();
  Session* one_expecting_too_many() const;
  awaitable<void> serve(Descriptor socket);
  awaitable<void> greet(FrameLink& link);
  awaitable<void> answer(Session& session);
  awaitable<void> answer_read(FrameLink& link, std::uint64_t stream, const std::string& body);
  awaitable<void> answer_pushed(FrameLink& link, std::uint64_t stream, const KvRead& read);
  awaitable<void> send_pieces(FrameLink& link, std::uint64_t stream, const KvRead& read,
                              const KeptPrefill& prefill);

  const asio::any_io_executor executor_;
  const KvSenderOptions options_;
  KeptPrefills& kept_;
  Descriptor listener_;
  const SocketFile file_;
  std::list<Session*> sessions_;  // those that asked something longest ago first
  ExpectedPushes expected_;
  KvTrafficCounts counts_;
  const std::shared_ptr<KeptWaits> waits_;
};

}  // namespace quire
