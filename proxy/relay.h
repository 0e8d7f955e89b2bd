#pragma once
// One request's way to one server, and its answer's way back.

#include <cstdint>
#include <functional>

#include "net/http_client.h"
#include "proxy/connection.h"

namespace quire::proxy {

enum class Leg : std::uint8_t {
  answered,
  client_left,  // its connection ends
  refused,      // with 502, 503 or 504: another server may do it
  unreachable,
  given_up,
  broken,  // in the middle, of which the client has been told
};

struct Relayed {
  Leg leg;
  net::Response refusal{};
};

bool may_retry(int status);

// Once a byte of an answer has gone out, there is no other try: a stream of events that breaks off
// ends with an error, and of anything else the client sees the end missing. Before that it ends when
// gives_up() says so.
Relayed relay(Connection& client, const IncomingRequest& request, const net::Url& server,
              const std::function<bool()>& gives_up = {});

// To a client that the proxy waits for no longer, and has sent nothing of an answer.
void refuse_cut(Connection& client, const IncomingRequest& request);

}  // namespace quire::proxy
