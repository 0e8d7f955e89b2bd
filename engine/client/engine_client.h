#pragma once
// One engine seen from the front end: its start-up, its latest statistics, and the hand-over of its
// outputs to their Generations. Any thread. The engine's events are handled one at a time, on a
// strand of the executor.

#include <chrono>
#include <compare>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/async.h"
#include "base/result.h"
#include "engine/client/generation.h"
#include "engine/client/live_requests.h"
#include "engine/wire/channel.h"

namespace quire {

// leaving: it was asked to end and takes nothing new, what runs there goes on. lost: gone, but it
// may come back, as engines behind sockets do.
enum class EngineState : std::uint8_t { starting, ready, leaving, lost, dead };

struct EngineStatus {
  EngineState state = EngineState::starting;
  std::string progress;          // while starting
  std::string error;             // when leaving, lost or dead, why
  Clock::time_point last_heard;  // of anything
  // Since when one is leaving or gone that was asked to end, and is expected back.
  std::optional<Clock::time_point> expected_since = {};
};

// Loads compare by their requests first.
struct EngineLoad {
  int requests = 0;             // of other front ends too
  int blocks_per_thousand = 0;  // in use, of the cache
  auto operator<=>(const EngineLoad&) const = default;
};

class EngineClient {
 public:
  struct Callbacks {
    std::function<void()> on_change;  // of the status, or the last live request has ended
    std::function<void(EngineId, const EngineStats&)> on_step;
    std::function<void(std::span<const Decision>)> on_decisions;  // of a step that made any
    std::function<void(const PrefixCacheReset&)> on_reset;
    std::function<void(BlockReport&&)> on_blocks;
    // Whether an engine that has become ready may take requests. Empty: yes.
    std::function<Result<void>(const Ready&)> accept;
    // Takes over a request of a lost engine of which no output was read yet. Empty: its
    // readers get an error.
    RetryRequest retry;
  };

  EngineClient(asio::any_io_executor executor, EngineId id, std::unique_ptr<ClientEnd> end);
  // Closes the line. No Generation is left by then.
  ~EngineClient();
  EngineClient(const EngineClient&) = delete;
  EngineClient& operator=(const EngineClient&) = delete;

  // Listens; answers Hello with the configuration. Once.
  void start(EngineConfig config, Callbacks callbacks);
  void fail(std::string error);  // the front end gives it up
  // Closes the line; waits for a callback that runs, and no other comes.
  void close();

  EngineId id() const;
  EngineStatus status() const;
  EngineState state() const;  // of the status alone, for every request asks
  Ready ready() const;  // of a ready engine
  std::uint32_t life() const;  // how often it has become ready: one that began again is another one
  EngineStats stats() const;
  EngineLoad load() const;
  int num_live() const;  // submitted, and the end has not come back
  // For how long it has had requests and said nothing; 0: it has none.
  Clock::duration silence() const;

  // overloaded: the channel is full. unavailable: it is not ready, or not any more. The request was
  // not moved from then. stays: no other engine takes it over.
  Result<Generation> submit(AddRequest&& request, bool stays = false);
  // The same for a request that another engine had.
  Result<void> resubmit(AddRequest request, const std::shared_ptr<GenerationBuffer>& buffer);
  void abort(RequestId id);
  // A question; a callback hears the answer. False: the line is closed.
  bool tell(Command command);
  void abort_all();  // their readers see FinishReason::abort

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // shared with events that are posted to the strand
};

using Engines = std::vector<std::unique_ptr<EngineClient>>;  // of a group, by rank

}  // namespace quire
