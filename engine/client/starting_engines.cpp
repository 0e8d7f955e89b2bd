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
    if (status.state == EngineState::lost) {
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

std::chrono::nanoseconds silence_left(const Engines& engines,
                                      std::chrono::milliseconds ready_timeout) {
  auto deadline = Clock::time_point::max();
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
