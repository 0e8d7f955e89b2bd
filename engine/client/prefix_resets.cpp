#include "engine/client/prefix_resets.h"

#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <random>
#include <utility>

namespace quire {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr std::uint64_t kLongestStride = 0xffff;

}  // namespace

awaitable<std::vector<PrefixCacheReset>> PrefixResets::ask(Send send) {
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
  std::vector<PrefixCacheReset> answers;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      answers = waiter->answers;
    }
    if (answers.size() >= asked || Clock::now() >= deadline) break;
    co_await with_timeout(deadline - Clock::now(),
                          waiter->answered.async_receive(asio::use_awaitable));
  }
  const std::lock_guard lock(mutex_);
  waiters_.erase(call);
  co_return answers;
}

void PrefixResets::take(const PrefixCacheReset& answer) {
  std::shared_ptr<Waiter> waiter;
  {
    const std::lock_guard lock(mutex_);
    const auto found = waiters_.find(answer.call);
    if (found == waiters_.end()) return;
    waiter = found->second;
    waiter->answers.push_back(answer);
  }
  waiter->answered.try_send(boost::system::error_code());
}

}  // namespace quire
