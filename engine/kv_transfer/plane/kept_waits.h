#pragma once
// What the coroutines of a side that keeps prefills wait for: the end of the next lease, and
// prefills that are being computed. Belongs to the transfer's thread, but for waker().

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <list>
#include <memory>

#include "base/async.h"
#include "engine/kv_transfer/memory/kept_prefills.h"

namespace quire {

class KeptWaits {
 public:
  explicit KeptWaits(asio::any_io_executor executor) : executor_(executor), alarm_(executor) {}

  // Wakes all that wait from any thread. Shared, because it may be called when whoever keeps the
  // prefills is gone.
  static std::function<void()> waker(std::shared_ptr<KeptWaits> waits);
  void wake();

  // Waits until it is woken, at most until `until`. Throws only where the coroutine is to end.
  awaitable<void> wait(KeptPrefills::Clock::time_point until);

  // Ends leases when their time comes, until it is cancelled. Calls `changed` when some have ended.
  awaitable<void> expire(KeptPrefills& kept, std::function<void()> changed);

 private:
  const asio::any_io_executor executor_;
  asio::steady_timer alarm_;  // of the next lease that ends
  std::list<asio::steady_timer*> waiting_;
};

}  // namespace quire
