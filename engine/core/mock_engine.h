#pragma once
// An engine without a model (mock_answers.h), to measure what stands in front of one: steps come by
// the clock. It answers the handshake as any engine does.

#include <memory>
#include <thread>

#include "engine/core/mock_answers.h"
#include "engine/wire/channel.h"

namespace quire {

class MockEngine {
 public:
  MockEngine(EngineId id, std::unique_ptr<EngineEnd> end);
  // Closes the line, joins the thread.
  ~MockEngine();
  MockEngine(const MockEngine&) = delete;
  MockEngine& operator=(const MockEngine&) = delete;

 private:
  void run();
  bool start_up();

  const EngineId id_;
  std::unique_ptr<EngineEnd> end_;
  Clock::duration step_time_{};
  MockAnswers answers_;
  std::thread thread_;  // last: it uses what is above
};

// One whose steps take no time needs no thread: it has answered when send() returns, and what is
// measured is the front end alone.
std::unique_ptr<ClientEnd> make_instant_mock(EngineId id);

}  // namespace quire
