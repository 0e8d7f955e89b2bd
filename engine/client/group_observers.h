#pragma once
// Who wants to see what a group's engines say of their steps. Any thread.

#include <mutex>
#include <shared_mutex>
#include <span>
#include <utility>

#include "engine/client/engine_group.h"

namespace quire {

class GroupObservers {
 public:
  void on_step(EngineGroup::StepObserver observer) {
    const std::lock_guard lock(mutex_);
    of_steps_ = std::move(observer);
  }
  void on_decisions(EngineGroup::DecisionObserver observer) {
    const std::lock_guard lock(mutex_);
    of_decisions_ = std::move(observer);
  }

  void see(EngineId id, const EngineStats& stats) const {
    const std::shared_lock lock(mutex_);
    if (of_steps_) of_steps_(id, stats);
  }
  void see(std::span<const Decision> decisions) const {
    const std::shared_lock lock(mutex_);
    if (of_decisions_) of_decisions_(decisions);
  }

 private:
  mutable std::shared_mutex mutex_;
  EngineGroup::StepObserver of_steps_;
  EngineGroup::DecisionObserver of_decisions_;
};

}  // namespace quire
