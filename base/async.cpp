#include "base/async.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/experimental/channel_error.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace quire {

namespace {

// The jobs that a context's coroutines have on other executors. A job holds the executor it goes
// back to for a moment longer than the coroutine that waits for it may live: a context that ends
// waits for that moment.
class JobsElsewhere final : public asio::execution_context::service {
  struct State {
    std::mutex mutex;
    std::condition_variable none;
    int count = 0;
  };

 public:
  static inline asio::execution_context::id id;
  explicit JobsElsewhere(asio::execution_context& context) : service(context) {}

  // One job, until it is gone.
  class Job {
   public:
    explicit Job(JobsElsewhere& jobs) : state_(jobs.state_) {
      const std::lock_guard lock(state_->mutex);
      ++state_->count;
    }
    Job(Job&&) noexcept = default;
    ~Job() {
      if (state_ == nullptr) return;
      const std::lock_guard lock(state_->mutex);
      if (--state_->count == 0) state_->none.notify_all();
    }

   private:
    std::shared_ptr<State> state_;
  };

 private:
  void shutdown() override {
    std::unique_lock lock(state_->mutex);
    state_->none.wait(lock, [this] { return state_->count == 0; });
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Work for another executor and the way back. Members end from the last to the first.
template <class Executor, class Handler>
struct JobAndReturn {
  JobsElsewhere::Job job;
  asio::executor_work_guard<Executor> home;
  Handler handler;
  std::stop_token stop;
  const std::function<void(std::stop_token)>* work;
  std::exception_ptr* error;

  void operator()() {
    try {
      if (stop.stop_requested()) {
        throw boost::system::system_error(asio::error::operation_aborted);
      }
      (*work)(stop);
    } catch (...) {
      *error = std::current_exception();
    }
    asio::post(home.get_executor(), std::move(handler));
  }
};

}  // namespace

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

awaitable<void> run_on(asio::any_io_executor worker, std::function<void(std::stop_token)> work) {
  std::exception_ptr error;
  auto initiate = [&](auto handler) {
    auto home = asio::get_associated_executor(handler, worker);
    auto& context = asio::query(home, asio::execution::context);
    std::stop_source stop;
    if (auto slot = asio::get_associated_cancellation_slot(handler); slot.is_connected()) {
      slot.assign([stop](asio::cancellation_type) mutable { stop.request_stop(); });
    }
    asio::post(worker, JobAndReturn<decltype(home), decltype(handler)>{
                           JobsElsewhere::Job(asio::use_service<JobsElsewhere>(context)),
                           asio::make_work_guard(home), std::move(handler), stop.get_token(), &work,
                           &error});
  };
  co_await asio::async_initiate<decltype(asio::use_awaitable), void()>(initiate,
                                                                       asio::use_awaitable);
  if (error) std::rethrow_exception(error);
}

awaitable<void> run_on(asio::any_io_executor worker, std::function<void()> work) {
  std::function<void(std::stop_token)> deaf = [&work](std::stop_token) { work(); };
  co_await run_on(std::move(worker), std::move(deaf));
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
    try {
      for (int i = 1; i < threads; ++i) others.emplace_back([&context] { context.run(); });
    } catch (...) {
      context.stop();  // those that did start end
      throw;
    }
    context.run();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace quire
