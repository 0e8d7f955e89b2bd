#include "engine/client/starting_engines.h"

#include <algorithm>

#include "base/log.h"

namespace quire {

std::string progress_of(const Engines& engines) {
  std::string line;
  for (const auto& engine : engines) {
    const EngineStatus status = engine->status();
    if (status.state == EngineState::ready) continue;
    if (!line.empty()) line += "; ";
    if (status.state == EngineState::lost || status.state == EngineState::leaving) {
      line += status.error;
      continue;
    }
    if (engines.size() > 1) line += "engine " + std::to_string(engine->id().value) + ": ";
    line += status.progress.empty() ? "waiting for the engine" : status.progress;
  }
  return line;
}

std::optional<Error> failed_engine(const Engines& engines,
                                   std::chrono::milliseconds ready_timeout) {
  for (auto& engine : engines) {
    const EngineStatus status = engine->status();
    if (status.state == EngineState::dead || status.state == EngineState::lost) {
      return Error{ErrorCode::unavailable, status.error, {}};
    }
    if (status.state == EngineState::starting &&
        Clock::now() - status.last_heard >= ready_timeout) {
      return Error{ErrorCode::timeout,
                   "engine " + std::to_string(engine->id().value) + " was silent for " +
                       std::to_string(ready_timeout.count()) +
                       " ms (EngineGroupOptions::ready_timeout)" +
                       (status.progress.empty() ? "" : " after: " + status.progress),
                   "EngineGroupOptions::ready_timeout"};
    }
  }
  return std::nullopt;
}

bool expected_back(const Engines& engines, std::chrono::nanoseconds patience) {
  return std::ranges::any_of(engines, [patience](const auto& engine) {
    const EngineStatus status = engine->status();
    return status.state == EngineState::leaving ||
           (status.expected_since && status.state != EngineState::dead &&
            Clock::now() - *status.expected_since < patience);
  });
}

Result<void> check_return(const ReadyInfo& info, const Ready& ready) {
  auto merged = merge_ready({info.engines.at(ready.engine.value), ready});
  if (!merged) return merged.error();
  if (ready.max_model_len >= info.max_model_len) return {};
  return Error{ErrorCode::invalid_argument,
               "engine " + std::to_string(ready.engine.value) + " is back with max_model_len " +
                   std::to_string(ready.max_model_len) + ", the server serves " +
                   std::to_string(info.max_model_len),
               "max_model_len"};
}

std::chrono::nanoseconds silence_left(const Engines& engines,
                                      std::chrono::milliseconds ready_timeout) {
  auto deadline = Clock::now() + std::chrono::hours(24);  // of none that starts: no matter
  for (const auto& engine : engines) {
    const EngineStatus status = engine->status();
    if (status.state != EngineState::starting) continue;
    deadline = std::min(deadline, status.last_heard + ready_timeout);
  }
  return deadline - Clock::now();
}

void log_waiting(const Engines& engines) {
  for (const auto& engine : engines) {
    const EngineStatus status = engine->status();
    if (status.state != EngineState::starting) continue;
    log::warn("engine.waiting",
              {{"engine", engine->id().value},
               {"for", status.progress.empty() ? "a first word of it" : status.progress},
               {"until_then", "requests get 503"}});
  }
}

}  // namespace quire
