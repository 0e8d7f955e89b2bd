#pragma once
// Path and method → handler, by one constant table.

#include "server/app_state.h"
#include "server/http/exchange.h"

namespace quire {

// Answers one request, whatever it is: unknown path, wrong method, missing key, a handler's own
// reply, or 500 when it threw. Throws only when it was cancelled.
awaitable<void> answer(Exchange& exchange, AppState& app);

// Answers what could not be read as a request, with a line in the log and in the counts.
awaitable<void> answer_unread(Exchange& exchange, const HttpRefusal& refusal, AppState& app);

}  // namespace quire
