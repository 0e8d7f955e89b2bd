// GET /debug/requests, /debug/requests/{id}: what became of the latest requests, and why it took so
// long.

#include <boost/asio/awaitable.hpp>
#include <span>
#include <utility>

#include "server/http/error_reply.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

constexpr std::string_view kPath = "/debug/requests/";
constexpr std::size_t kSlowest = 20;

awaitable<void> reply_with(std::span<const Timeline> timelines, Exchange& exchange, AppState& app) {
  std::string body = timelines_json(timelines);
  const Spelling spelling = app.config.spelling;
  if (spelling) body = spelling(std::move(body));
  co_await exchange.reply(json_reply(std::move(body)));
}

}  // namespace

// The slowest of those that are remembered, whether or not ?slow asks for it.
awaitable<void> get_debug_requests(Exchange& exchange, AppState& app) {
  const auto slowest = app.timelines.slowest(kSlowest);
  co_await reply_with(slowest, exchange, app);
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
  co_await reply_with(found, exchange, app);
}

}  // namespace quire
