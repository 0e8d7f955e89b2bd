#include "base/task_group.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cassert>
#include <list>
#include <utility>

#include "base/log.h"

namespace quire {

namespace {

struct Task {
  explicit Task(asio::any_io_executor e) : executor(std::move(e)) {}

  asio::any_io_executor executor;
  asio::cancellation_signal signal;  // touched on `executor` only
};

void log_unless_cancelled(const std::exception_ptr& error) {
  if (!error || is_cancellation(error)) return;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    log::error("task.failed", {{"error", e.what()}});
  } catch (...) {
    log::error("task.failed", {});
  }
}

}  // namespace

struct TaskGroup::State {
  explicit State(asio::any_io_executor executor)
      : strand(executor), all_ended(executor, asio::steady_timer::time_point::max()) {}

  void end(std::list<std::shared_ptr<Task>>::iterator task) {
    tasks.erase(task);
    if (tasks.empty()) all_ended.cancel();
  }

  asio::any_io_executor strand;
  asio::steady_timer all_ended;
  // Shared with a cancellation that is on its way to the task's own strand.
  std::list<std::shared_ptr<Task>> tasks;
};

TaskGroup::TaskGroup(asio::any_io_executor strand)
    : state_(std::make_unique<State>(std::move(strand))) {}

TaskGroup::~TaskGroup() { assert(state_->tasks.empty() && "close() first"); }

void TaskGroup::spawn(awaitable<void> task) { spawn_on(state_->strand, std::move(task)); }

void TaskGroup::spawn_on(asio::any_io_executor executor, awaitable<void> task) {
  State* state = state_.get();
  const auto entry = state->tasks.insert(state->tasks.end(), std::make_shared<Task>(executor));
  auto on_end = [state, entry](std::exception_ptr error) {
    log_unless_cancelled(error);
    asio::dispatch(state->strand, [state, entry] { state->end(entry); });
  };
  asio::co_spawn(executor, std::move(task),
                 asio::bind_cancellation_slot((*entry)->signal.slot(),
                                              asio::bind_executor(executor, std::move(on_end))));
}

std::size_t TaskGroup::size() const { return state_->tasks.size(); }

void TaskGroup::cancel(Cancel how) {
  const auto type =
      how == Cancel::finish ? asio::cancellation_type::total : asio::cancellation_type::terminal;
  const auto tasks = state_->tasks;  // a task may end, and leave the list, while it is cancelled
  for (const auto& task : tasks) {
    asio::dispatch(task->executor, [task, type] { task->signal.emit(type); });
  }
}

awaitable<void> TaskGroup::wait() {
  boost::system::error_code ended;
  while (!state_->tasks.empty()) {
    co_await state_->all_ended.async_wait(asio::redirect_error(asio::use_awaitable, ended));
    const auto cancelled = co_await asio::this_coro::cancellation_state;
    if (cancelled.cancelled() != asio::cancellation_type::none && !state_->tasks.empty()) break;
  }
}

awaitable<void> TaskGroup::join() {
  co_await wait();
  if (state_->tasks.empty()) co_return;
  co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
  cancel(Cancel::now);
  co_await wait();
  throw boost::system::system_error(asio::error::operation_aborted);
}

awaitable<void> TaskGroup::close() {
  co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
  cancel(Cancel::now);
  co_await wait();
}

}  // namespace quire
