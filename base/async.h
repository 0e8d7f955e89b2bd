#pragma once
// Coroutines as this project uses them. The header only declares: include
// <boost/asio/awaitable.hpp> where a coroutine is defined.

#include <chrono>
#include <functional>
#include <stop_token>

namespace boost::asio {
class any_io_executor;
template <typename T, typename Executor>
class awaitable;
}  // namespace boost::asio

namespace quire {

namespace asio = boost::asio;
template <class T>
using awaitable = asio::awaitable<T, asio::any_io_executor>;

// Runs both until one ends, however it ends; cancels the other and waits for its end; rethrows the
// first one's error. Returns which was first: 0 or 1. Of several cancellations only the first gets
// through to them: what may be cancelled twice (finish, then now) must not wait in here.
awaitable<int> first_of(awaitable<void> a, awaitable<void> b);

// False when the deadline came first; the task was cancelled and has ended by then.
awaitable<bool> with_timeout(std::chrono::nanoseconds limit, awaitable<void> task);

awaitable<void> sleep_for(std::chrono::nanoseconds duration);

// Does blocking or long work on another executor and comes back; rethrows what it threw. A caller
// that is cancelled still waits for the work to end, so the work may hold references to the caller's
// frame; but work that has not begun by then never does (operation_aborted), and long work can look
// at the token.
awaitable<void> run_on(asio::any_io_executor worker, std::function<void(std::stop_token)> work);
awaitable<void> run_on(asio::any_io_executor worker, std::function<void()> work);

// True when the error is a cancelled operation, which is the normal way out of a coroutine.
bool is_cancellation(const std::exception_ptr& error);

// Runs a program's or a test's root coroutine on `threads` threads (this one included) until it and
// everything it left on the pool has ended; rethrows its error. The root starts on a strand of its
// own; `pool` is the executor to make more strands on.
void run(int threads, std::function<awaitable<void>(asio::any_io_executor pool)> root);

}  // namespace quire
