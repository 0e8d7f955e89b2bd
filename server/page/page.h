#pragma once
// The page for people at GET /: a chat in the browser and the server's figures. Its files are part of
// the binary; it uses the public API like any other client, and loads nothing from elsewhere.

#include "server/app_state.h"
#include "server/http/exchange.h"

namespace quire {

// Whether this GET / comes from a browser rather than from a program.
bool wants_page(const HttpRequest& request);

awaitable<void> get_page(Exchange& exchange, AppState& app);
// GET /docs: the contract, for people.
awaitable<void> get_docs(Exchange& exchange, AppState& app);
// GET /ui/NAME
awaitable<void> get_page_file(Exchange& exchange, AppState& app);

}  // namespace quire
