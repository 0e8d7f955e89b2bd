// GET /debug/requests, /debug/requests/{id}: what became of the latest requests, and why it took so
// long.

#include <boost/asio/awaitable.hpp>

#include "server/http/error_reply.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

constexpr std::string_view kPath = "/debug/requests/";
constexpr std::size_t kSlowest = 20;

}  // namespace

// The slowest of those that are remembered, whether or not ?slow asks for it.
awaitable<void> get_debug_requests(Exchange& exchange, AppState& app) {
  co_await exchange.reply(json_reply(timelines_json(app.timelines.slowest(kSlowest))));
}

awaitable<void> get_debug_request(Exchange& exchange, AppState& app) {
  const std::string id = exchange.request().path.substr(kPath.size());
  const auto found = app.timelines.find(id);
  if (found.empty()) {
    const Error error{ErrorCode::not_found,
                      "No request with the id `" + id.substr(0, 200) +
                          "` is remembered: the log's request_id, or a reply's id, of one of the "
                          "latest requests",
                      "request_id"};
    co_return co_await exchange.reply(error_reply(error));
  }
  co_await exchange.reply(json_reply(timelines_json(found)));
}

}  // namespace quire
