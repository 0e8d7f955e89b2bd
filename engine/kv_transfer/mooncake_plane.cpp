#include "engine/kv_transfer/mooncake_plane.h"

#include <fmt/format.h>

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

struct MooncakePlane::State {
  MooncakePlaneOptions options;
  KeptPrefills* kept = nullptr;
  StagingBuffer* arriving = nullptr;
  std::function<void()> wake;

  std::promise<void> started;
  bool has_started = false;
  asio::any_io_executor executor;  // from `started` on
  std::optional<asio::steady_timer> stop;
  std::unique_ptr<MooncakeKeeper> keeper;
  std::unique_ptr<MooncakeInbox> inbox;
  std::unique_ptr<MooncakePuller> puller;
  std::atomic<bool> open = false;  // between start and stop; written on the thread

  // What belongs to the coroutines' context ends before it.
  struct Ending {
    State& state;
    ~Ending() {
      state.open = false;
      state.puller.reset();
      state.inbox.reset();
      state.keeper.reset();
      state.stop.reset();
      state.executor = {};
    }
  };

  void begin(TaskGroup& tasks) {
    SocketAddress listen = options.listen;
    if (kept != nullptr) {
      keeper = std::make_unique<MooncakeKeeper>(executor, tasks, listen, options.self,
                                                options.peers, options.keeper, *kept);
      tasks.spawn(keeper->accept_queries());
      tasks.spawn(keeper->accept_asks());
      tasks.spawn(keeper->expire());
      listen.port = 0;  // the bootstrap server has it
    }
    if (arriving != nullptr) {
      inbox = std::make_unique<MooncakeInbox>(executor, listen, options.self, options.inbox);
      tasks.spawn(inbox->accept_hellos(tasks));
      tasks.spawn(inbox->accept_writes(tasks));
      options.puller.host = inbox->host();
      puller = std::make_unique<MooncakePuller>(executor, tasks, options.self, options.peers,
                                                *inbox, *arriving, options.puller, wake);
    }
  }

  awaitable<void> serve() {
    const Ending ending{*this};
    executor = co_await asio::this_coro::executor;
    stop.emplace(executor, asio::steady_timer::time_point::max());
    TaskGroup tasks(executor);
    std::exception_ptr failure;
    try {
      begin(tasks);
    } catch (...) {
      failure = std::current_exception();
    }
    if (failure) {
      co_await tasks.close();
      std::rethrow_exception(failure);
    }
    open = true;
    has_started = true;
    started.set_value();
    boost::system::error_code ignored;
    co_await stop->async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    open = false;
    co_await tasks.close();
  }
};

MooncakePlane::MooncakePlane(MooncakePlaneOptions options, KeptPrefills* kept,
                             StagingBuffer* arriving, std::function<void()> wake)
    : state_(std::make_shared<State>()) {
  state_->options = std::move(options);
  state_->kept = kept;
  state_->arriving = arriving;
  if (!wake) wake = [] {};  // an engine that is driven by hand
  state_->options.keeper.changed = wake;
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

MooncakePlane::~MooncakePlane() {
  asio::post(state_->executor, [state = state_] {
    if (state->stop) state->stop->cancel();
  });
  thread_.join();
}

void MooncakePlane::run() {
  State& state = *state_;
  try {
    quire::run(1, [&state](asio::any_io_executor) { return state.serve(); });
  } catch (...) {
    if (!state.has_started) return state.started.set_exception(std::current_exception());
    log::error("kv_transfer.dead", {});
  }
}

void MooncakePlane::post(std::function<void(MooncakePuller&)> call) {
  asio::post(state_->executor, [state = state_, call = std::move(call)] {
    if (state->open && state->puller) call(*state->puller);
  });
}

void MooncakePlane::watch(RequestId request, KvSource source) {
  post([request, source = std::move(source)](MooncakePuller& puller) {
    puller.watch(request, source);
  });
}
void MooncakePlane::fetch(KvFetch fetch) {
  post([fetch = std::move(fetch)](MooncakePuller& puller) { puller.fetch(fetch); });
}
void MooncakePlane::cancel(RequestId request) {
  post([request](MooncakePuller& puller) { puller.cancel(request); });
}
void MooncakePlane::release(RequestId request) {
  post([request](MooncakePuller& puller) { puller.release(request); });
}
void MooncakePlane::room_came() {
  post([](MooncakePuller& puller) { puller.room_came(); });
}
std::vector<KvFetched> MooncakePlane::take() {
  return state_->puller == nullptr ? std::vector<KvFetched>() : state_->puller->take();
}

std::uint16_t MooncakePlane::port() const {
  return state_->keeper != nullptr  ? state_->keeper->port()
         : state_->inbox != nullptr ? state_->inbox->port()
                                    : 0;
}
const KvTrafficCounts& MooncakePlane::sent() const {
  static const KvTrafficCounts kNone;
  return state_->keeper == nullptr ? kNone : state_->keeper->counts();
}
const KvTrafficCounts& MooncakePlane::received() const {
  static const KvTrafficCounts kNone;
  return state_->puller == nullptr ? kNone : state_->puller->counts();
}

}  // namespace quire
