#pragma once
// Threads that run what is posted to them.

#include <memory>

namespace boost::asio {
class any_io_executor;
}

namespace quire {

class WorkerPool {
 public:
  // Throws std::system_error, with every thread ended, where the system gives fewer.
  explicit WorkerPool(int threads);
  // Waits for what runs; what has not begun never does.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  boost::asio::any_io_executor executor() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
