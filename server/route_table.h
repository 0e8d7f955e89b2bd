#pragma once
// Every path that the server answers, by whom, and what a request needs first.

#include <string>
#include <string_view>

#include "base/async.h"
#include "server/http/exchange.h"

namespace quire {

struct AppState;

struct Route {
  // What a request needs before its handler may run.
  enum Needs : unsigned {
    nothing = 0,
    engine = 1,
    json_body = 2,
    no_key = 4,       // answered to everyone
    metrics_key = 8,  // asks for a key only where one was set for it
    uncounted = 16,   // probes and scrapes would drown the requests in /metrics
    generates = 32,   // not of a pooling model
    pools = 64,       // of a pooling model only
    admin_key = 128,  // asks for the admin's key where one was set, else for any
  };

  std::string_view path;  // a trailing * stands for the rest, without a slash; ** with slashes
  Method method;
  awaitable<void> (*handler)(Exchange&, AppState&);
  unsigned needs = nothing;
};

struct FoundRoute {
  const Route* route = nullptr;
  bool path_exists = false;
  std::string allow{};  // of a path that exists
};

FoundRoute find_route(const HttpRequest& request);
// Where there is none for it: 404 with what was probably meant, 405, or the answer to OPTIONS.
Reply no_route(const FoundRoute& found, const HttpRequest& request);

}  // namespace quire
