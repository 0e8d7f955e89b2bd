#pragma once
// Questions to all engines, and their answers: structs with the number of the call. Any strand.

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/experimental/concurrent_channel.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/async.h"

namespace quire {

template <class Answer>
class EngineCalls {
 public:
  // Sends the call, by its number, to every engine that can answer; returns how many were asked.
  using Send = std::function<std::size_t(std::uint64_t call)>;

  // The answers of those that were asked, or what has come within ten seconds.
  awaitable<std::vector<Answer>> ask(Send send) {
    using Clock = std::chrono::steady_clock;
    const auto executor = co_await asio::this_coro::executor;
    auto waiter = std::make_shared<Waiter>(executor);
    // Strides of chance: several front ends of one engine hardly ever count alike.
    const std::uint64_t call = last_call_ += 1 + (std::random_device()() & kLongestStride);
    {
      const std::lock_guard lock(mutex_);
      waiters_[call] = waiter;
    }
    const std::size_t asked = send(call);
    const auto deadline = Clock::now() + kPatience;
    while (num_answers(*waiter) < asked && Clock::now() < deadline) {
      co_await with_timeout(deadline - Clock::now(),
                            waiter->answered.async_receive(asio::use_awaitable));
    }
    const std::lock_guard lock(mutex_);
    waiters_.erase(call);
    co_return std::move(waiter->answers);
  }

  // An engine's answer. Those to another front end's calls are dropped.
  void take(Answer answer) {
    std::shared_ptr<Waiter> waiter;
    {
      const std::lock_guard lock(mutex_);
      const auto found = waiters_.find(answer.call);
      if (found == waiters_.end()) return;
      waiter = found->second;
      waiter->answers.push_back(std::move(answer));
    }
    waiter->answered.try_send(boost::system::error_code());
  }

 private:
  static constexpr std::chrono::seconds kPatience{10};
  static constexpr std::uint64_t kLongestStride = 0xffff;

  struct Waiter {
    using Signal = asio::experimental::concurrent_channel<void(boost::system::error_code)>;
    explicit Waiter(asio::any_io_executor executor) : answered(std::move(executor), 1) {}
    std::vector<Answer> answers;  // under mutex_
    Signal answered;
  };

  std::size_t num_answers(const Waiter& waiter) {
    const std::lock_guard lock(mutex_);
    return waiter.answers.size();
  }

  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Waiter>> waiters_;  // by call
  std::atomic<std::uint64_t> last_call_{0};
};

}  // namespace quire
