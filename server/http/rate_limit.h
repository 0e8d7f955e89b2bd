#pragma once
// So much a minute, refilled steadily. What is spent is known afterwards: it may go into debt, and
// nothing is allowed until the debt is paid off. Any thread.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <mutex>

namespace quire {

class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RateLimit(std::int64_t per_minute = 0)  // 0: no limit
      : per_minute_(static_cast<double>(per_minute)), left_(per_minute_) {}

  // 0: something may begin. Otherwise seconds until it may.
  int wait(Clock::time_point now) {
    if (per_minute_ == 0) return 0;
    const std::lock_guard guard(mutex_);
    refill(now);
    if (left_ >= 1) return 0;
    return static_cast<int>(std::ceil((1 - left_) * 60 / per_minute_));
  }
  void spend(std::int64_t count, Clock::time_point now) {
    if (per_minute_ == 0) return;
    const std::lock_guard guard(mutex_);
    refill(now);
    left_ -= static_cast<double>(count);
  }

 private:
  void refill(Clock::time_point now) {
    if (filled_ != Clock::time_point()) {
      const double seconds = std::chrono::duration<double>(now - filled_).count();
      left_ = std::min(per_minute_, left_ + per_minute_ * std::max(seconds, 0.0) / 60);
    }
    filled_ = now;
  }

  double per_minute_;
  double left_;
  Clock::time_point filled_{};
  std::mutex mutex_;
};

}  // namespace quire
