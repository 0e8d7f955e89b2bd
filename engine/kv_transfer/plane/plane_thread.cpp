#include "engine/kv_transfer/plane/plane_thread.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <future>
#include <optional>
#include <utility>

#include "base/log.h"

namespace quire {
namespace {

const KvTrafficCounts kNoTraffic;

}  // namespace

struct PlaneThread::State {
  Make make;
  std::promise<void> started;
  std::promise<void> left;  // whoever ends it does not touch the executor any more
  bool has_started = false;
  asio::any_io_executor executor;  // from `started` on
  std::optional<asio::steady_timer> stop;
  std::unique_ptr<Ends> ends;  // between start and stop
  bool is_open = false;        // likewise, and no longer while tasks end

  // What belongs to the coroutines' context ends before it.
  struct Ending {
    State& state;
    ~Ending() {
      state.ends.reset();
      state.stop.reset();
      state.executor = {};
    }
  };

  awaitable<void> serve() {
    const Ending ending{*this};
    executor = co_await asio::this_coro::executor;
    stop.emplace(executor, asio::steady_timer::time_point::max());
    TaskGroup tasks(executor);
    std::exception_ptr failure;
    try {
      ends = make(executor, tasks);
    } catch (...) {
      failure = std::current_exception();
    }
    if (failure) {
      co_await tasks.close();
      std::rethrow_exception(failure);
    }
    is_open = has_started = true;
    started.set_value();
    boost::system::error_code ignored;
    co_await stop->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    is_open = false;
    co_await tasks.close();
    left.get_future().wait();  // else its last copy of the executor could outlive the context
  }

  void run() {
    try {
      quire::run(1, [this](asio::any_io_executor) { return serve(); });
    } catch (...) {
      if (!has_started) return started.set_exception(std::current_exception());
      log::error("kv_transfer.dead", {});
    }
  }
};

PlaneThread::PlaneThread(Make make) : state_(std::make_shared<State>()) {
  state_->make = std::move(make);
  std::future<void> started = state_->started.get_future();
  thread_ = std::thread([state = state_] { state->run(); });
  try {
    started.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

PlaneThread::~PlaneThread() {
  asio::post(state_->executor, [state = state_] {
    if (state->stop) state->stop->cancel();
  });
  state_->left.set_value();
  thread_.join();
}

void PlaneThread::post(std::function<void(KvFetcher&)> call) {
  asio::post(state_->executor, [state = state_, call = std::move(call)] {
    try {
      if (state->is_open && state->ends->fetcher != nullptr) call(*state->ends->fetcher);
    } catch (const std::exception& e) {
      log::error("kv_transfer.failed", {{"because", e.what()}});
    }
  });
}

KvFetcher* PlaneThread::fetcher() const { return state_->ends->fetcher; }
std::uint16_t PlaneThread::port() const { return state_->ends->port; }
const KvTrafficCounts& PlaneThread::sent() const {
  const KvTrafficCounts* const sent = state_->ends->sent;
  return sent == nullptr ? kNoTraffic : *sent;
}

}  // namespace quire
