#pragma once
// Times and counts of one choice, for /metrics. Whatever way the choice ends, it is counted once;
// one that is dropped counts as aborted.

#include <chrono>
#include <memory>
#include <span>

#include "engine/wire/messages.h"
#include "server/metrics/metrics.h"

namespace quire {

// What the choices of one prompt share. The last to end speaks for the request.
struct SiblingChoices {
  int running = 0;
  int most_tokens = 0;  // of any that has ended
};

class ChoiceTracker {
 public:
  // Without siblings it is the only choice.
  ChoiceTracker(Metrics& metrics, EngineId engine, Clock::time_point arrival, int prompt_tokens,
                int max_tokens, int n, std::shared_ptr<SiblingChoices> siblings = {});
  ChoiceTracker(ChoiceTracker&& other) noexcept;
  ~ChoiceTracker();

  // `times` are those of the output's tokens; `num_tokens` so far, up to a stop string. A vector
  // ends its prompt as a first token does.
  void on_output(const RequestOutput& output, std::span<const Clock::time_point> times,
                 int num_tokens);
  void on_end(RequestEnd end);

 private:
  Metrics* metrics_;  // null: moved from
  EngineId engine_;
  RequestSample sample_;
  Clock::time_point arrival_;
  Clock::time_point last_token_{};
  RequestTimes times_{};
  std::shared_ptr<SiblingChoices> siblings_;  // shared: they end in any order
  bool ended_ = false;
};

}  // namespace quire
