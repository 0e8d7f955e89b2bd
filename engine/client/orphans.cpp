#include "engine/client/orphans.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/client/generation_buffer.h"

namespace quire {
namespace {

void end(const Orphans::One& one, const Error& error) {
  one.buffer->finish(FinishReason::error, error);
}

}  // namespace

Orphans::Orphans(asio::any_io_executor executor, std::chrono::nanoseconds patience)
    : patience_(patience), timer_(std::move(executor)) {}

void Orphans::add(One one) {
  if (one.until == Clock::time_point()) one.until = Clock::now() + patience_;
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  std::erase_if(waiting_, [](const One& other) { return other.buffer->finished(); });
  waiting_.push_back(std::move(one));
  wait_for_first();
}

std::size_t Orphans::size() const {
  const std::lock_guard lock(mutex_);
  return num_taken_ + static_cast<std::size_t>(std::ranges::count_if(
                          waiting_, [](const One& one) { return !one.buffer->finished(); }));
}

int Orphans::num_of(const EngineClient& engine) const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::ranges::count_if(waiting_, [&engine](const One& one) {
    return one.buffer->client == &engine && !one.buffer->finished();
  }));
}

std::vector<Orphans::One> Orphans::take() {
  std::vector<One> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(waiting_);
    std::erase_if(taken, [](const One& one) { return one.buffer->finished(); });
    num_taken_ += taken.size();
    timer_.cancel();
  }
  return taken;
}

void Orphans::place(const std::function<bool(One&)>& place) {
  std::vector<One> taken = take();
  const std::size_t count = taken.size();
  for (One& one : taken) {
    if (!place(one)) add(std::move(one));
  }
  const std::lock_guard lock(mutex_);
  num_taken_ -= count;
}

void Orphans::fail(const Error& error) {
  place([&error](One& one) {
    end(one, error);
    return true;
  });
}

void Orphans::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  waiting_.clear();
  timer_.cancel();
}

void Orphans::wait_for_first() {
  if (waiting_.empty()) return;
  timer_.expires_at(std::ranges::min_element(waiting_, {}, &One::until)->until);
  timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& cancelled) {
    const auto self = weak.lock();
    if (self && !cancelled) self->expire();
  });
}

void Orphans::expire() {
  std::vector<One> overdue;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    const auto first = std::partition(waiting_.begin(), waiting_.end(),
                                      [now](const One& one) { return one.until > now; });
    std::move(first, waiting_.end(), std::back_inserter(overdue));
    waiting_.erase(first, waiting_.end());
    if (!closed_) wait_for_first();
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience_).count();
  for (const One& one : overdue) {
    end(one, {ErrorCode::unavailable,
              one.why + ", and none was ready within " + std::to_string(seconds) + " s",
              {}});
  }
}

}  // namespace quire
