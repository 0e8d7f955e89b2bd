#pragma once
// Events on their way to a client: put in by whoever hears the engine, taken out by the client. Any
// thread. It never calls the client by itself, so that callers can do so without a lock held.

#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

#include "engine/wire/messages.h"

namespace quire {

class EventMailbox {
 public:
  using Notify = std::function<void()>;

  // max_events: beyond so many a StepOutput is merged into the one that was put in last.
  explicit EventMailbox(std::size_t max_events) : max_events_(max_events) {}

  // The client's side. Closed, it is told nothing more and what is put in is dropped.
  void on_events(Notify notify);
  bool take(std::vector<EngineEvent>& events);  // appends; false: nothing more will come
  void close();

  // The engine's side. What is returned is to be called if there is something to call: nothing
  // waited before, or the end has come.
  [[nodiscard]] Notify put(EngineEvent event);
  [[nodiscard]] Notify end();

  bool is_open() const;  // neither side has ended it

 private:
  const std::size_t max_events_;
  mutable std::mutex mutex_;
  std::vector<EngineEvent> events_;
  Notify notify_;
  bool is_closed_ = false, has_ended_ = false;
};

}  // namespace quire
