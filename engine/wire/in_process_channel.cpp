#include "engine/wire/in_process_channel.h"

#include <condition_variable>
#include <iterator>
#include <mutex>
#include <utility>

namespace quire {
namespace {

template <class T>
void move_all(std::vector<T>& from, std::vector<T>& to) {
  if (to.empty()) {
    to.swap(from);
  } else {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    from.clear();
  }
}

// What both ends share; it lives until the second one is gone.
class Line {
 public:
  explicit Line(ChannelLimits limits) : limits_(limits) {}

  bool send(Command& command) {
    {
      const std::lock_guard lock(mutex_);
      if (client_closed_ || engine_closed_) return false;
      if (needs_room(command) && commands_.size() >= limits_.max_commands) return false;
      commands_.push_back(std::move(command));
    }
    command_arrived_.notify_one();
    return true;
  }

  bool take_commands(std::vector<Command>& commands, bool wait) {
    std::unique_lock lock(mutex_);
    if (wait) {
      command_arrived_.wait(lock, [this] { return !commands_.empty() || woken_ || closed(); });
      woken_ = false;
    }
    move_all(commands_, commands);
    return !closed();
  }

  void wake() {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    command_arrived_.notify_one();
  }

  void on_events(std::function<void()> notify) {
    const std::lock_guard lock(mutex_);
    notify_ = std::move(notify);
  }

  void publish(EngineEvent event) {
    {
      const std::lock_guard lock(mutex_);
      if (client_closed_) return;
      auto* step = std::get_if<StepOutput>(&event);
      if (step != nullptr && events_.size() >= limits_.max_events &&
          std::holds_alternative<StepOutput>(events_.back())) {
        merge(std::get<StepOutput>(events_.back()), std::move(*step));
        return;
      }
      events_.push_back(std::move(event));
      if (events_.size() > 1) return;
    }
    tell_client();
  }

  bool take_events(std::vector<EngineEvent>& events) {
    const std::lock_guard lock(mutex_);
    move_all(events_, events);
    return !engine_closed_;
  }

  void close_client() {
    {
      const std::lock_guard lock(mutex_);
      client_closed_ = true;
      notify_ = nullptr;
    }
    command_arrived_.notify_all();
  }

  void close_engine() {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(engine_closed_, true)) return;
    }
    command_arrived_.notify_all();
    tell_client();
  }

 private:
  bool closed() const { return client_closed_ || engine_closed_; }

  // A copy is called, outside the lock: the client may close while it runs.
  void tell_client() {
    std::function<void()> notify;
    {
      const std::lock_guard lock(mutex_);
      notify = notify_;
    }
    if (notify) notify();
  }

  const ChannelLimits limits_;
  std::mutex mutex_;
  std::condition_variable command_arrived_;
  std::vector<Command> commands_;
  std::vector<EngineEvent> events_;
  std::function<void()> notify_;
  bool woken_ = false;
  bool client_closed_ = false;
  bool engine_closed_ = false;
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
  void on_events(std::function<void()> notify) override { line_->on_events(std::move(notify)); }
  bool take(std::vector<EngineEvent>& events) override { return line_->take_events(events); }
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
