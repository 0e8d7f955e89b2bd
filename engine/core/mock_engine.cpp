#include "engine/core/mock_engine.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/wire/event_mailbox.h"

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
    tell(events_.put(Hello{id, std::string(quire_version())}));
  }

  bool send(Command& command) override {
    EventMailbox::Notify notify;
    {
      const std::lock_guard lock(mutex_);
      if (!events_.is_open()) return false;
      std::vector<EngineEvent> answered;
      const bool lives = answer(command, answered);
      for (EngineEvent& event : answered)
        if (auto one = events_.put(std::move(event))) notify = std::move(one);
      if (!lives) notify = events_.end();
    }
    tell(notify);
    return true;
  }

  void on_events(std::function<void()> notify) override { events_.on_events(std::move(notify)); }
  bool take(std::vector<EngineEvent>& events) override { return events_.take(events); }
  void close() override { events_.close(); }

 private:
  static void tell(const EventMailbox::Notify& notify) {
    if (notify) notify();
  }

  // False: the engine is dead.
  bool answer(Command& command, std::vector<EngineEvent>& events) {
    try {
      if (const auto* configure = std::get_if<Configure>(&command)) {
        events.push_back(answers_.start(configure->config));
      } else {
        answers_.apply(command, events);
        if (answers_.has_work()) events.push_back(answers_.step(std::numeric_limits<int>::max()));
      }
      return true;
    } catch (const std::exception& e) {
      events.push_back(dead(id_, e));
      return false;
    }
  }

  const EngineId id_;
  EventMailbox events_{std::numeric_limits<std::size_t>::max()};
  std::mutex mutex_;  // what follows
  MockAnswers answers_;
};

}  // namespace

std::unique_ptr<ClientEnd> make_instant_mock(EngineId id) {
  return std::make_unique<InstantMock>(id);
}

}  // namespace quire
