#include "app/engines/process_end.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace quire {
namespace {

class ProcessEnd final : public ClientEnd {
 public:
  ProcessEnd(std::unique_ptr<ClientEnd> socket, std::shared_ptr<ProcessNews> news)
      : socket_(std::move(socket)), news_(std::move(news)) {}
  ~ProcessEnd() override { close(); }

  bool send(Command& command) override { return socket_->send(command); }
  void on_events(std::function<void()> notify) override {
    news_->on_events(notify);
    socket_->on_events(std::move(notify));
  }
  // News first: they are of the life before the one that a Hello behind them begins.
  bool take(std::vector<EngineEvent>& events) override {
    if (!news_->take(events)) return false;
    const std::size_t first = events.size();
    const bool open = socket_->take(events);
    const auto is_ready = [](const EngineEvent& event) {
      return std::holds_alternative<Ready>(event);
    };
    if (std::any_of(events.begin() + static_cast<std::ptrdiff_t>(first), events.end(), is_ready))
      news_->note_ready();
    return open;
  }
  void close() override {
    news_->on_events(nullptr);
    socket_->close();
  }

 private:
  const std::unique_ptr<ClientEnd> socket_;
  const std::shared_ptr<ProcessNews> news_;
};

}  // namespace

void ProcessNews::on_events(std::function<void()> notify) {
  const std::lock_guard lock(mutex_);
  notify_ = std::move(notify);
}

void ProcessNews::ended(std::string how) {
  {
    const std::lock_guard lock(mutex_);
    events_.emplace_back(EngineDead{{}, "its process has ended with " + std::move(how)});
  }
  tell();
}

void ProcessNews::gone_for_good() {
  {
    const std::lock_guard lock(mutex_);
    gone_ = true;
  }
  tell();
}

void ProcessNews::fell_silent() {
  const std::lock_guard lock(mutex_);
  is_silent_ = true;
  if (notify_of_silence_) notify_of_silence_();
}

void ProcessNews::on_silence(std::function<void()> notify) {
  const std::lock_guard lock(mutex_);
  notify_of_silence_ = std::move(notify);
}

bool ProcessNews::take_silence() {
  const std::lock_guard lock(mutex_);
  return std::exchange(is_silent_, false);
}

void ProcessNews::note_ready() {
  const std::lock_guard lock(mutex_);
  was_ready_ = true;
}

bool ProcessNews::was_ready() const {
  const std::lock_guard lock(mutex_);
  return was_ready_;
}

bool ProcessNews::take(std::vector<EngineEvent>& events) {
  const std::lock_guard lock(mutex_);
  std::ranges::move(events_, std::back_inserter(events));
  events_.clear();
  return !gone_;
}

void ProcessNews::tell() {
  std::function<void()> notify;
  {
    const std::lock_guard lock(mutex_);
    notify = notify_;
  }
  if (notify) notify();
}

std::unique_ptr<ClientEnd> make_process_end(std::unique_ptr<ClientEnd> socket,
                                            std::shared_ptr<ProcessNews> news) {
  return std::make_unique<ProcessEnd>(std::move(socket), std::move(news));
}

}  // namespace quire
