#pragma once
// An engine without a model, to measure what stands in front of one: every request gets one token a
// step, the last of its prompt again and again, and steps come by the clock. It answers the
// handshake as any engine does, and refuses requests for what only logits give.

#include <memory>
#include <thread>
#include <vector>

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
  struct Running {
    RequestId id;
    TokenId token = 0;
    int left = 0;  // tokens until it ends
    RequestTimes times;
  };

  void run();
  bool start_up();
  void apply(Command& command);
  StepOutput step();

  const EngineId id_;
  std::unique_ptr<EngineEnd> end_;
  Clock::duration step_time_{};
  std::vector<Running> running_;
  EngineStats stats_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace quire
