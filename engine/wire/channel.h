#pragma once
// Where threads meet, and nowhere else: the two ends of the line between a front end and one
// engine. Both directions are bounded. Either end may close; destroying an end closes it.
//
// Commands: at most ChannelLimits::max_commands wait; a further AddRequest or FetchRefused is
// refused, an abort or a Configure is always taken (there is one abort per live request).
// Events: publish() never waits. When max_events wait, the next StepOutput is merged into the last
// one, so that what waits is bounded by the tokens that live requests may still produce.

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "engine/wire/messages.h"

namespace quire {

struct ChannelLimits {
  std::size_t max_commands = 4096;
  std::size_t max_events = 1024;
};

// Held by the engine thread.
class EngineEnd {
 public:
  virtual ~EngineEnd() = default;
  // Appends every command that has arrived. False: the other end is closed.
  virtual bool take(std::vector<Command>& commands) = 0;
  // The same, but sleeps until there is a command or the line is closed.
  virtual bool wait_and_take(std::vector<Command>& commands) = 0;
  // From any thread: the wait_and_take() that sleeps, or else the next one, returns.
  virtual void wake() = 0;
  virtual void publish(EngineEvent event) = 0;
  virtual void close() = 0;  // from any thread; wakes wait_and_take()
};

// Held by an EngineClient; every method may be called from any thread.
class ClientEnd {
 public:
  virtual ~ClientEnd() = default;
  // False: full or closed; the command was not moved from.
  virtual bool send(Command& command) = 0;
  // notify is called when events, or the engine's closing, come where nothing waited; on any
  // thread, without a lock held. Set once, before the first send().
  virtual void on_events(std::function<void()> notify) = 0;
  // Appends every event that waits. False: the engine closed and nothing more will come.
  virtual bool take(std::vector<EngineEvent>& events) = 0;
  virtual void close() = 0;
};

// Clients decide how many of these come: they are sent only where there is room.
inline bool needs_room(const Command& command) {
  return std::holds_alternative<AddRequest>(command) ||
         std::holds_alternative<FetchRefused>(command);
}

struct ChannelEnds {
  std::unique_ptr<ClientEnd> client;
  std::unique_ptr<EngineEnd> engine;
};

}  // namespace quire
