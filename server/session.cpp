#include "server/session.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/this_coro.hpp>

#include "base/task_group.h"
#include "server/http/connection.h"
#include "server/http/exchange.h"
#include "server/router.h"

namespace quire {

namespace {

constexpr std::size_t kMaxToldPath = 200;  // of a request that could not be read

constexpr std::chrono::milliseconds kProbeTimeout{2000};

awaitable<void> refuse(Connection& connection, RequestReader& reader, const HttpRefusal& refusal,
                       AppState& app) {
  HttpRequest unread;
  unread.method = Method::other;
  unread.keep_alive = false;
  unread.path = refusal.path.substr(0, kMaxToldPath);
  Exchange exchange(connection, reader, std::move(unread));
  exchange.use_spelling(app.config.spelling);
  co_await answer_unread(exchange, refusal, app);
}

awaitable<void> serve_requests(Connection& connection, AppState& app, bool probes_only) {
  connection.set_deadline(app.config.limits.header_timeout);
  if (!co_await connection.handshake()) co_return;
  const HttpLimits& limits = app.config.limits;
  bool is_first = true;
  while (!app.stopping) {
    RequestReader reader(connection);
    // Who has asked before may think for longer than who only opened a connection.
    HttpHead head = co_await reader.read_head(
        probes_only ? kProbeTimeout : is_first ? limits.header_timeout : limits.keep_alive_timeout);
    is_first = false;
    if (head.refusal) {
      co_await refuse(connection, reader, *head.refusal, app);
    }
    if (!head.request) break;
    Exchange exchange(connection, reader, std::move(*head.request));
    exchange.use_spelling(app.config.spelling);
    exchange.count_reply(app.num_replying);
    if (app.stopping || probes_only) exchange.close_after();
    if (probes_only) exchange.set_probes_only();
    co_await answer(exchange, app);
    if (!exchange.keep_alive()) break;
  }
  co_await connection.close();
}

}  // namespace

// Not first_of(): that hands down one cancellation only, and here two may come, finish and now.
awaitable<void> serve_connection(asio::any_io_executor strand, std::unique_ptr<ByteStream> stream,
                                 AppState& app, bool probes_only) {
  Connection connection(strand, std::move(stream), app.config.limits);
  TaskGroup watching(strand);
  watching.spawn(connection.watch());
  std::exception_ptr failure;
  try {
    co_await serve_requests(connection, app, probes_only);
  } catch (...) {
    failure = std::current_exception();
  }
  co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
  co_await watching.close();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace quire
