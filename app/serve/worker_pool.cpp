#include "app/serve/worker_pool.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <thread>
#include <vector>

namespace quire {

// asio::thread_pool waits forever where not all of its threads can be had.
struct WorkerPool::State {
  explicit State(int count) : context(count), open(context.get_executor()) {
    try {
      for (int i = 0; i < count; ++i) threads.emplace_back([this] { context.run(); });
    } catch (...) {
      context.stop();
      throw;
    }
  }
  ~State() { context.stop(); }

  boost::asio::io_context context;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> open;
  std::vector<std::jthread> threads;  // last: they use what is above
};

WorkerPool::WorkerPool(int threads) : state_(std::make_unique<State>(threads)) {}
WorkerPool::~WorkerPool() = default;

boost::asio::any_io_executor WorkerPool::executor() const {
  return state_->context.get_executor();
}

}  // namespace quire
