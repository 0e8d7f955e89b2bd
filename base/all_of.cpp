#include "base/all_of.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>

namespace quire {

awaitable<void> all_of(std::vector<awaitable<void>> tasks) {
  if (tasks.size() == 1) {
    co_await std::move(tasks.front());
    co_return;
  }
  const auto executor = co_await asio::this_coro::executor;
  using Started = decltype(asio::co_spawn(executor, std::move(tasks.front()), asio::deferred));
  std::vector<Started> started;
  for (awaitable<void>& task : tasks)
    started.push_back(asio::co_spawn(executor, std::move(task), asio::deferred));
  const auto [order, errors] =
      co_await asio::experimental::make_parallel_group(std::move(started))
          .async_wait(asio::experimental::wait_for_one_error(), asio::use_awaitable);
  for (const std::size_t ended : order)  // the first that failed, not those that it cancelled
    if (errors[ended]) std::rethrow_exception(errors[ended]);
}

}  // namespace quire
