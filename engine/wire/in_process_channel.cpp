#include "engine/wire/in_process_channel.h"

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <utility>

#include "engine/wire/event_mailbox.h"

namespace quire {
namespace {

// What both ends share; it lives until the second one is gone.
class Line {
 public:
  explicit Line(ChannelLimits limits) : limits_(limits), events_(limits.max_events) {}

  bool send(Command& command) {
    {
      const std::lock_guard lock(mutex_);
      if (!events_.is_open()) return false;
      if (needs_room(command) && commands_.size() >= limits_.max_commands) return false;
      commands_.push_back(std::move(command));
    }
    command_arrived_.notify_one();
    return true;
  }

  bool take_commands(std::vector<Command>& commands, bool wait) {
    std::unique_lock lock(mutex_);
    if (wait) {
      command_arrived_.wait(
          lock, [this] { return !commands_.empty() || woken_ || !events_.is_open(); });
      woken_ = false;
    }
    if (commands.empty()) {
      commands.swap(commands_);
    } else {
      std::ranges::move(commands_, std::back_inserter(commands));
      commands_.clear();
    }
    return events_.is_open();
  }

  void wake() {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    command_arrived_.notify_one();
  }

  EventMailbox& events() { return events_; }

  void publish(EngineEvent event) {
    if (const auto notify = events_.put(std::move(event))) notify();
  }

  // Both under the lock, so that whoever waits for a command does not miss it.
  void close_client() {
    {
      const std::lock_guard lock(mutex_);
      events_.close();
    }
    command_arrived_.notify_all();
  }

  void close_engine() {
    EventMailbox::Notify notify;
    {
      const std::lock_guard lock(mutex_);
      notify = events_.end();
    }
    command_arrived_.notify_all();
    if (notify) notify();
  }

 private:
  const ChannelLimits limits_;
  EventMailbox events_;
  std::mutex mutex_;  // what follows
  std::condition_variable command_arrived_;
  std::vector<Command> commands_;
  bool woken_ = false;
};

class InProcessEngineEnd final : public EngineEnd {
 public:
  explicit InProcessEngineEnd(std::shared_ptr<Line> line) : line_(std::move(line)) {}
  ~InProcessEngineEnd() override { line_->close_engine(); }
  bool take(std::vector<Command>& commands) override {
    return line_->take_commands(commands, false);
  }
  bool wait_and_take(std::vector<Command>& commands) override {
    return line_->take_commands(commands, true);
  }
  void wake() override { line_->wake(); }
  void publish(EngineEvent event) override { line_->publish(std::move(event)); }
  void close() override { line_->close_engine(); }

 private:
  std::shared_ptr<Line> line_;
};

class InProcessClientEnd final : public ClientEnd {
 public:
  explicit InProcessClientEnd(std::shared_ptr<Line> line) : line_(std::move(line)) {}
  ~InProcessClientEnd() override { line_->close_client(); }
  bool send(Command& command) override { return line_->send(command); }
  void on_events(std::function<void()> notify) override {
    line_->events().on_events(std::move(notify));
  }
  bool take(std::vector<EngineEvent>& events) override { return line_->events().take(events); }
  void close() override { line_->close_client(); }

 private:
  std::shared_ptr<Line> line_;
};

}  // namespace

ChannelEnds make_in_process_channel(ChannelLimits limits) {
  auto line = std::make_shared<Line>(limits);
  return {std::make_unique<InProcessClientEnd>(line), std::make_unique<InProcessEngineEnd>(line)};
}

}  // namespace quire
