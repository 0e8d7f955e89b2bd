#pragma once
// Owner of coroutines: nothing runs without something that waits for it. Every method runs on the
// group's strand; a task may run on a strand of its own and is cancelled there.

#include <cstddef>
#include <memory>

#include "base/async.h"

namespace quire {

enum class Cancel {
  finish,  // "finish up": reaches only those that asked for it (asio's total cancellation)
  now,     // ends every task at its next suspension (asio's terminal cancellation)
};

class TaskGroup {
 public:
  explicit TaskGroup(asio::any_io_executor strand);
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;
  ~TaskGroup();  // close() first

  void spawn(awaitable<void> task);
  // An error that is not a cancellation is logged; it ends this task only.
  void spawn_on(asio::any_io_executor executor, awaitable<void> task);

  std::size_t size() const;
  void cancel(Cancel how);
  // Waits until no task is left, or until the caller is cancelled.
  awaitable<void> wait();
  // Waits until no task is left; a caller that is cancelled meanwhile cancels them all, waits for
  // their end, and throws.
  awaitable<void> join();
  // Cancels every task, then waits for the last one to end; not itself cancellable, and neither is
  // its caller from then on.
  awaitable<void> close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
