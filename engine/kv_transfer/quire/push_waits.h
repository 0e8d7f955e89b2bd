#pragma once
// Prefills that will be pushed and have not begun: all that one engine waits for at a peer's, over
// one line, so that any number of them takes no connection, room or turn from what travels. Both
// ends; belongs to the transfer's thread.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/async.h"
#include "base/task_group.h"
#include "engine/kv_transfer/memory/kept_prefills.h"
#include "engine/kv_transfer/plane/data_plane.h"
#include "engine/kv_transfer/quire/frame_link.h"
#include "engine/kv_transfer/quire/push_stream.h"

namespace quire {

// What is expected at one owner, over all of its lines.
struct ExpectedPushes {
  std::size_t names = 0, bytes = 0;
};

// The owner's end: from the first `expect`, whose header was read, until none is left. Whoever
// expects a prefill that does not begin within a lease is refused.
awaitable<void> attend_pushes(FrameLink& link, KvFrameHeader first, KeptPrefills& kept,
                              ExpectedPushes& expected, PushWait wait);

class PushWaits {
 public:
  // A line to a peer that has said who it is; throws KvLost.
  using Connect = std::function<awaitable<std::shared_ptr<FrameLink>>(SocketAddress address)>;

  // `silence` is that of the lines.
  PushWaits(TaskGroup& tasks, Connect connect, std::chrono::nanoseconds silence);
  ~PushWaits();

  // Until that prefill has begun there. Throws KvLost where it will not.
  awaitable<void> begun(SocketAddress address, KvKey prefill);

 private:
  struct Waiter;
  struct Line;
  awaitable<void> run(std::shared_ptr<Line> line);
  awaitable<void> attend(Line& line, FrameLink& link);

  TaskGroup& tasks_;
  const Connect connect_;
  const std::chrono::nanoseconds silence_;
  std::uint64_t last_stream_ = 0;
  std::unordered_map<std::string, std::shared_ptr<Line>> lines_;  // by address
};

}  // namespace quire
