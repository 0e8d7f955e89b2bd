#include "engine/core/mock_engine.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"

namespace quire {

namespace {

EngineDead dead(EngineId id, const std::exception& error) {
  log::error("engine.dead", {{"engine", id.value}, {"error", error.what()}});
  return {id, error.what()};
}

}  // namespace

MockEngine::MockEngine(EngineId id, std::unique_ptr<EngineEnd> end)
    : id_(id), end_(std::move(end)), answers_(id), thread_([this] { run(); }) {}

MockEngine::~MockEngine() {
  end_->close();
  thread_.join();
}

bool MockEngine::start_up() {
  end_->publish(Hello{id_, std::string(quire_version())});
  std::vector<Command> commands;
  while (commands.empty()) {
    if (!end_->wait_and_take(commands)) return false;
  }
  const auto& config = std::get<Configure>(commands.front()).config;
  step_time_ = std::chrono::microseconds(config.mock_step_us);
  end_->publish(answers_.start(config));
  return true;
}

void MockEngine::run() {
  try {
    if (!start_up()) return;
    std::vector<Command> commands;
    std::vector<EngineEvent> events;
    auto next = Clock::now();
    while (true) {
      commands.clear();
      const bool open = answers_.has_work() ? end_->take(commands) : end_->wait_and_take(commands);
      if (!open) return;
      for (Command& command : commands) answers_.apply(command, events);
      for (EngineEvent& event : events) end_->publish(std::move(event));
      events.clear();
      if (!answers_.has_work()) continue;
      next = std::max(next + step_time_, Clock::now());
      std::this_thread::sleep_until(next);
      end_->publish(answers_.step(1));
    }
  } catch (const std::exception& e) {
    end_->publish(dead(id_, e));
    end_->close();
  }
}

namespace {

class InstantMock final : public ClientEnd {
 public:
  explicit InstantMock(EngineId id) : id_(id), answers_(id) {
    events_.push_back(Hello{id, std::string(quire_version())});
  }

  bool send(Command& command) override {
    std::function<void()> notify;
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      const bool nothing_waited = events_.empty();
      answer(command);
      if (nothing_waited && !events_.empty()) notify = notify_;
    }
    if (notify) notify();
    return true;
  }

  void on_events(std::function<void()> notify) override {
    const std::lock_guard lock(mutex_);
    notify_ = std::move(notify);
  }

  bool take(std::vector<EngineEvent>& events) override {
    const std::lock_guard lock(mutex_);
    std::ranges::move(events_, std::back_inserter(events));
    events_.clear();
    return !closed_;
  }

  void close() override {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    notify_ = nullptr;
  }

 private:
  void answer(Command& command) {
    try {
      if (const auto* configure = std::get_if<Configure>(&command)) {
        events_.push_back(answers_.start(configure->config));
      } else {
        answers_.apply(command, events_);
        if (answers_.has_work()) events_.push_back(answers_.step(std::numeric_limits<int>::max()));
      }
    } catch (const std::exception& e) {
      events_.push_back(dead(id_, e));
      closed_ = true;
    }
  }

  const EngineId id_;
  std::mutex mutex_;
  MockAnswers answers_;
  std::vector<EngineEvent> events_;
  std::function<void()> notify_;
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<ClientEnd> make_instant_mock(EngineId id) {
  return std::make_unique<InstantMock>(id);
}

}  // namespace quire
