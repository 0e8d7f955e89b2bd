#include "engine/wire/event_mailbox.h"

#include <iterator>
#include <utility>
#include <variant>

namespace quire {

void EventMailbox::on_events(Notify notify) {
  const std::lock_guard lock(mutex_);
  notify_ = std::move(notify);
}

bool EventMailbox::take(std::vector<EngineEvent>& events) {
  const std::lock_guard lock(mutex_);
  if (events.empty()) {
    events.swap(events_);
  } else {
    events.insert(events.end(), std::make_move_iterator(events_.begin()),
                  std::make_move_iterator(events_.end()));
    events_.clear();
  }
  return !has_ended_;
}

void EventMailbox::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  notify_ = nullptr;
}

EventMailbox::Notify EventMailbox::put(EngineEvent event) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return {};
  auto* step = std::get_if<StepOutput>(&event);
  if (step != nullptr && events_.size() >= max_events_ &&
      std::holds_alternative<StepOutput>(events_.back())) {
    merge(std::get<StepOutput>(events_.back()), std::move(*step));
    return {};
  }
  events_.push_back(std::move(event));
  return events_.size() > 1 ? Notify() : notify_;
}

EventMailbox::Notify EventMailbox::end() {
  const std::lock_guard lock(mutex_);
  return std::exchange(has_ended_, true) ? Notify() : notify_;
}

bool EventMailbox::is_open() const {
  const std::lock_guard lock(mutex_);
  return !is_closed_ && !has_ended_;
}

}  // namespace quire
