#include "engine/kv_transfer/transfer_thread.h"

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <future>
#include <utility>

#include "base/log.h"

namespace quire {

struct TransferThread::State {
  TransferThreadOptions options;
  KeptPrefills* kept = nullptr;
  StagingBuffer* arriving = nullptr;
  std::function<void()> wake;

  std::promise<void> started;
  bool has_started = false;
  asio::any_io_executor executor;  // from `started` on
  std::optional<asio::steady_timer> stop;
  std::unique_ptr<KvSender> sender;
  std::unique_ptr<KvReceiver> receiver;
  std::atomic<bool> open = false;  // between start and stop; written on the thread

  // What belongs to the coroutines' context ends before it.
  struct Ending {
    State& state;
    ~Ending() {
      state.open = false;
      state.receiver.reset();
      state.sender.reset();
      state.stop.reset();
      state.executor = {};
    }
  };

  awaitable<void> serve() {
    const Ending ending{*this};
    executor = co_await asio::this_coro::executor;
    stop.emplace(executor, asio::steady_timer::time_point::max());
    TaskGroup tasks(executor);
    if (kept != nullptr) {
      sender = std::make_unique<KvSender>(executor, *options.listen, options.sender, *kept);
      tasks.spawn(sender->accept(tasks));
      tasks.spawn(sender->expire());
    }
    if (arriving != nullptr)
      receiver = std::make_unique<KvReceiver>(tasks, *arriving, options.receiver, wake);
    open = true;
    has_started = true;
    started.set_value();
    boost::system::error_code ignored;
    co_await stop->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    open = false;
    co_await tasks.close();
  }
};

TransferThread::TransferThread(TransferThreadOptions options, KeptPrefills* kept,
                               StagingBuffer* arriving, std::function<void()> wake)
    : state_(std::make_shared<State>()) {
  state_->options = std::move(options);
  state_->kept = kept;
  state_->arriving = arriving;
  if (!wake) wake = [] {};  // an engine that is driven by hand
  state_->options.sender.changed = wake;
  state_->wake = std::move(wake);
  std::future<void> started = state_->started.get_future();
  thread_ = std::thread([this] { run(); });
  try {
    started.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

TransferThread::~TransferThread() {
  asio::post(state_->executor, [state = state_] {
    if (state->stop) state->stop->cancel();
  });
  thread_.join();
}

void TransferThread::run() {
  State& state = *state_;
  try {
    quire::run(1, [&state](asio::any_io_executor) { return state.serve(); });
  } catch (...) {
    if (!state.has_started) return state.started.set_exception(std::current_exception());
    log::error("kv_transfer.dead", {});
  }
}

void TransferThread::post(std::function<void(KvReceiver&)> call) {
  asio::post(state_->executor, [state = state_, call = std::move(call)] {
    if (state->open && state->receiver) call(*state->receiver);
  });
}

void TransferThread::watch(RequestId request, KvSource source) {
  post([request, source = std::move(source)](KvReceiver& receiver) {
    receiver.watch(request, source);
  });
}
void TransferThread::fetch(KvFetch fetch) {
  post([fetch = std::move(fetch)](KvReceiver& receiver) { receiver.fetch(fetch); });
}
void TransferThread::cancel(RequestId request) {
  post([request](KvReceiver& receiver) { receiver.cancel(request); });
}
void TransferThread::release(RequestId request) {
  post([request](KvReceiver& receiver) { receiver.release(request); });
}
void TransferThread::room_came() {
  post([](KvReceiver& receiver) { receiver.room_came(); });
}
std::vector<KvFetched> TransferThread::take() {
  return state_->receiver == nullptr ? std::vector<KvFetched>() : state_->receiver->take();
}

std::uint16_t TransferThread::port() const {
  return state_->sender == nullptr ? 0 : state_->sender->port();
}
const KvTrafficCounts& TransferThread::sent() const {
  static const KvTrafficCounts kNone;
  return state_->sender == nullptr ? kNone : state_->sender->counts();
}
const KvTrafficCounts& TransferThread::received() const {
  static const KvTrafficCounts kNone;
  return state_->receiver == nullptr ? kNone : state_->receiver->counts();
}

}  // namespace quire
