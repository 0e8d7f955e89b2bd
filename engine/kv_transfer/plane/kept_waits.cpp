#include "engine/kv_transfer/plane/kept_waits.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "engine/kv_transfer/plane/timer_wait.h"

namespace quire {

std::function<void()> KeptWaits::waker(std::shared_ptr<KeptWaits> waits) {
  return [waits = std::move(waits)] { asio::post(waits->executor_, [waits] { waits->wake(); }); };
}

void KeptWaits::wake() {
  alarm_.cancel();
  for (asio::steady_timer* timer : waiting_) timer->cancel();
}

awaitable<void> KeptWaits::wait(KeptPrefills::Clock::time_point until) {
  asio::steady_timer timer(executor_, until);
  struct Place {
    std::list<asio::steady_timer*>& all;
    std::list<asio::steady_timer*>::iterator at;
    ~Place() { all.erase(at); }
  } place{waiting_, waiting_.insert(waiting_.end(), &timer)};
  co_await until_woken(timer);
}

awaitable<void> KeptWaits::expire(KeptPrefills& kept, std::function<void()> changed) {
  while (true) {
    const std::int64_t expired = kept.counts().expired;
    const auto next = kept.expire(KeptPrefills::Clock::now());
    if (kept.counts().expired != expired) changed();
    alarm_.expires_at(next.value_or(KeptPrefills::Clock::time_point::max()));
    co_await until_woken(alarm_);
  }
}

}  // namespace quire
