#pragma once
// What a mock engine says, whoever calls it when: it has no model, and gives every request the last
// token of its prompt again and again. What only logits give is refused.

#include <vector>

#include "engine/wire/messages.h"

namespace quire {

class MockAnswers {
 public:
  explicit MockAnswers(EngineId id) : id_(id) {}

  Ready start(const EngineConfig& config);  // throws Failure
  // A request begins to run; what is answered at once is appended to `events`.
  void apply(Command& command, std::vector<EngineEvent>& events);
  bool has_work() const { return !running_.empty(); }
  // Some tokens for every request, or as many as it still wants.
  StepOutput step(int tokens);

 private:
  struct Running {
    RequestId id;
    TokenId token = 0;
    int left = 0;  // tokens until it ends
    RequestTimes times;
  };

  void add(const AddRequest& request, std::vector<EngineEvent>& events);

  const EngineId id_;
  std::vector<Running> running_;
  EngineStats stats_;
};

}  // namespace quire
