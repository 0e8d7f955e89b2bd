#pragma once
// All engines of one model, seen from the server: start-up, choice of replica, health, drain. Any
// strand.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/result.h"
#include "engine/client/generation.h"
#include "engine/client/ready_info.h"
#include "engine/wire/messages.h"

namespace quire {

class ClientEnd;  // engine/wire/channel.h

enum class EngineGroupState : std::uint8_t { starting, ready, draining, dead };

struct EngineGroupOptions {
  std::chrono::milliseconds ready_timeout{std::chrono::minutes(10)};  // of an engine's silence
  // For so long a request whose engine was lost waits for one, if nobody has seen any of its
  // answer.
  std::chrono::milliseconds orphan_patience{std::chrono::seconds(30)};
  // So long after start() there is a line in the log for each engine that nothing was heard of.
  std::chrono::milliseconds waiting_notice{std::chrono::seconds(5)};
  // Whether an engine has the front end's model. Empty: it need not be asked.
  std::function<Result<void>(const Ready&)> has_our_model = {};
};

// Outlives its Generations; ends before the executor's context does, as the engine threads must.
class EngineGroup {
 public:
  // Called after every step of an engine, on an I/O thread; the steps of one engine in order.
  using StepObserver = std::function<void(EngineId, const EngineStats&)>;

  // One end per engine, by rank. An engine may be a thread, a process or another machine.
  EngineGroup(asio::any_io_executor executor, std::vector<std::unique_ptr<ClientEnd>> engines,
              EngineConfig config, EngineGroupOptions options = {});
  ~EngineGroup();

  // Replaces the observer, or with {} takes it away; the one before is not called any more when
  // this returns. Not from within a call.
  void on_step(StepObserver observer);

  // The same for what the schedulers decide about requests.
  using DecisionObserver = std::function<void(std::span<const Decision>)>;
  void on_decisions(DecisionObserver observer);

  // Handshake with all engines. The error says which engine failed, in its own words; the group is
  // dead then.
  awaitable<Result<void>> start();

  // Dead when no engine is left: what one that has died had is lost, the others serve on.
  EngineGroupState state() const;
  bool has_dead() const;     // an engine has died for good
  bool has_started() const;  // it has been ready, and may be waiting for an engine's return
  bool is_up(EngineId engine) const;  // it takes requests
  std::string progress() const;       // while starting: what it waits for, one line
  std::string error() const;          // where one has died: why
  const ReadyInfo& ready() const;     // once ready; stays valid

  int num_engines() const;
  // After its latest step; with those that wait for its return.
  EngineStats stats(EngineId engine) const;
  // Requests that have not ended, those that wait for an engine's return among them.
  int num_live() const;

  bool has_room() const;  // a request would be taken, not refused as overloaded
  // invalid_argument: more requests together than could ever be taken; overloaded: than now.
  Result<void> check_room(std::int64_t requests) const;
  std::int64_t num_free() const;    // how many more would be taken now
  Clock::duration silence() const;  // the longest of an engine that has requests

  // To the least loaded engine: by its requests, those of other front ends too, then by its blocks
  // in use. Before that to the one that had this prompt's beginning last, if that is a good part of
  // it and the engine has hardly more to do than the least loaded one. Or to the engine that is
  // named, which exists. Fills in the id. Errors: overloaded (starting, or queue full), unavailable
  // (draining, dead), invalid_argument (prompt or parameters).
  Result<Generation> submit(AddRequest request, std::optional<EngineId> engine = {});

  // All engines forget their cached prefixes; the answers of those that were asked, which are fewer
  // than there are engines where one is not ready or says nothing in time.
  awaitable<std::vector<PrefixCacheReset>> reset_prefix_cache();

  // Who holds which blocks, engine by engine; as many answers as above.
  awaitable<std::vector<BlockReport>> report_blocks();

  // Who waits for a prefill of that name to be sent is told that it runs in that engine, or that it
  // came to nothing.
  void tell_push(const std::string& name, std::optional<EngineId> engine);

  // Whoever keeps what such a request was to fetch may forget it.
  void refuse_fetch(const std::string& params, const std::string& name);

  // Refuses new requests, waits until the others have ended; at the deadline aborts what is left.
  awaitable<void> drain(Clock::time_point deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
