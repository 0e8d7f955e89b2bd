#pragma once
// A front end as an engine's socket end sees it: its connection, which requests are its own, and
// what waits to be sent. Requests are numbered by every front end for itself; inside the engine a
// front end's slot stands above its numbers.

#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/wire/connection.h"
#include "engine/wire/messages.h"

namespace quire {

class FrontEndPeer {
 public:
  static constexpr std::uint64_t kNumSlots = 1 << 15;

  FrontEndPeer(WireConnection connection, std::uint64_t slot);

  WireConnection connection;  // the thread's
  const std::uint64_t slot;
  const Clock::time_point since = Clock::now();
  int dialled = -1;  // which of the addresses that are dialled; -1: it has dialled
  bool greeted = false;
  std::vector<std::string> frames{};  // that came before it was taken in

  void queue(EngineEvent event);  // in the connection

  // Under the end's mutex, as the other methods.
  bool configured = false;
  bool leaving = false;       // as soon as all is sent
  bool says_leaving = false;  // that the engine is, behind what waits

  // Of a step: its own requests, and everybody's statistics. Takes them out of `step`.
  void publish(StepOutput& step, std::size_t max_events);
  // Whose requests the others are, it is not told.
  void publish(BlockReport report);
  void publish(EngineEvent event) { outbox_.push_back(std::move(event)); }
  std::vector<EngineEvent> take_outbox() { return std::exchange(outbox_, {}); }

  // The number inside the engine; unset: not among those that live.
  RequestId begin(const AddRequest& request);
  std::optional<RequestId> end(const AbortRequest& request);
  const std::unordered_set<std::uint64_t>& live() const { return live_; }
  // Requests that have not ended, or of whose end the connection may have yet to be told.
  std::size_t num_live() const { return live_.size() + num_ends_; }
  // The connection has nothing more to send.
  void all_sent() {
    if (outbox_.empty()) num_ends_ = 0;
  }

 private:
  RequestId inside(RequestId id) const;

  std::unordered_set<std::uint64_t> live_;
  std::vector<EngineEvent> outbox_;
  std::size_t num_ends_ = 0;  // published since all was sent
};

}  // namespace quire
