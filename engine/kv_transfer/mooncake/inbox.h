#pragma once
// Where Mooncake peers write what a fetch waits for: the handshake's port and that of the bytes.
// Nothing can be read here, and what is written outside of an open window is refused before its
// bytes are read. Belongs to the transfer's thread.

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/async.h"
#include "base/task_group.h"
#include "engine/kv_mooncake/segment.h"
#include "engine/kv_mooncake/write_frame.h"
#include "engine/kv_transfer/memory/staging.h"
#include "engine/kv_transfer/mooncake/byte_line.h"
#include "engine/kv_transfer/mooncake/landing.h"
#include "engine/kv_transfer/peers/peer_list.h"
#include "engine/kv_transfer/peers/visitors.h"

namespace quire {

struct MooncakeInboxOptions {
  std::chrono::nanoseconds silence = std::chrono::seconds(10);
  std::chrono::nanoseconds idle = std::chrono::minutes(10);  // of a connection that writes nothing
  std::size_t max_connections = 256;
};

// What one fetch waits for. Without a landing its bytes are taken and thrown away: whoever writes
// them has to come to an end.
struct MooncakeWindow {
  explicit MooncakeWindow(MooncakeLanding l) : landing(std::move(l)) {}
  MooncakeLanding landing;
  std::shared_ptr<StagedRange> memory;
  std::function<void()> changed = [] {};
  bool is_open = true;  // who writes is hung up afterwards
};

class MooncakeInbox {
 public:
  // Listens at once; throws Failure where it cannot.
  MooncakeInbox(asio::any_io_executor executor, const SocketAddress& address,
                const MooncakeSelf& self, MooncakeInboxOptions options);

  std::uint16_t port() const { return port_of(hello_); }
  std::string host() const { return local_host(hello_.get()); }  // as a number
  // Numbers that no fetch had lately.
  std::int64_t next_first_id(std::int64_t num_ids);
  void open(std::shared_ptr<MooncakeWindow> window);
  void close(MooncakeWindow& window);

  awaitable<void> accept_hellos(TaskGroup& sessions);  // both until they are cancelled
  awaitable<void> accept_writes(TaskGroup& sessions);

 private:
  awaitable<void> accept(TaskGroup& sessions, const Descriptor& listener, bool is_hello);
  awaitable<void> serve(Descriptor socket, bool is_hello);
  awaitable<void> answer_hello(ByteLine& line);
  // `begun` once its bytes are waited for.
  awaitable<void> take_write(ByteLine& line, std::function<void()> begun);
  std::shared_ptr<MooncakeWindow> find(const MooncakeWrite& write, std::int64_t& at) const;
  MooncakeSegment segment() const;

  const asio::any_io_executor executor_;
  const SocketAddress address_;
  const MooncakeSelf& self_;
  const MooncakeInboxOptions options_;
  Descriptor hello_, data_;
  Visitors visitors_;
  std::int64_t most_ids_ = 0, next_id_ = 1;
  std::map<std::int64_t, std::shared_ptr<MooncakeWindow>> windows_;  // by the first number
};

}  // namespace quire
