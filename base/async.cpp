#include "base/async.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/experimental/channel_error.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>
#include <utility>
#include <vector>

namespace quire {

awaitable<int> first_of(awaitable<void> a, awaitable<void> b) {
  const auto executor = co_await asio::this_coro::executor;
  auto [order, error_a, error_b] =
      co_await asio::experimental::make_parallel_group(
          asio::co_spawn(executor, std::move(a), asio::deferred),
          asio::co_spawn(executor, std::move(b), asio::deferred))
          .async_wait(asio::experimental::wait_for_one(), asio::use_awaitable);
  const int first = static_cast<int>(order[0]);
  if (const auto error = first == 0 ? error_a : error_b) std::rethrow_exception(error);
  co_return first;
}

awaitable<void> sleep_for(std::chrono::nanoseconds duration) {
  asio::steady_timer timer(co_await asio::this_coro::executor, duration);
  co_await timer.async_wait(asio::use_awaitable);
}

awaitable<bool> with_timeout(std::chrono::nanoseconds limit, awaitable<void> task) {
  co_return co_await first_of(std::move(task), sleep_for(limit)) == 0;
}

awaitable<void> run_on(asio::any_io_executor worker, std::function<void()> work) {
  std::exception_ptr error;
  auto initiate = [&](auto handler) {
    auto home = asio::get_associated_executor(handler, worker);
    auto job = [&work, &error, home = asio::make_work_guard(home),
                handler = std::move(handler)]() mutable {
      try {
        work();
      } catch (...) {
        error = std::current_exception();
      }
      asio::post(home.get_executor(), std::move(handler));
    };
    asio::post(worker, std::move(job));
  };
  co_await asio::async_initiate<decltype(asio::use_awaitable), void()>(initiate,
                                                                       asio::use_awaitable);
  if (error) std::rethrow_exception(error);
}

bool is_cancellation(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const boost::system::system_error& e) {
    return e.code() == asio::error::operation_aborted ||
           e.code() == asio::experimental::error::channel_cancelled;
  } catch (...) {
  }
  return false;
}

void run(int threads, std::function<awaitable<void>(asio::any_io_executor pool)> root) {
  asio::io_context context(threads);
  std::exception_ptr error;
  asio::co_spawn(asio::make_strand(context), root(context.get_executor()),
                 [&error](std::exception_ptr e) { error = e; });
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back([&context] { context.run(); });
    context.run();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace quire
