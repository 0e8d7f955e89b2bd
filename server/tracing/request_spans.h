#pragma once
// The spans of one HTTP request: one for itself, and within it one for each request to an engine,
// with the scheduler's decisions as events.

#include <span>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"
#include "server/timelines.h"
#include "server/tracing/span.h"

namespace quire {

// `path` is the route's. Empty where the client says that its trace is not sampled.
std::vector<Span> request_spans(const Exchange& exchange, std::string_view path,
                                std::span<const Timeline> timelines, std::string_view model);

}  // namespace quire
