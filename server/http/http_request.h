#pragma once
// One HTTP request as the handlers see it, and its reading from a connection.

#include <optional>
#include <string>
#include <string_view>

#include "base/async.h"

namespace quire {

class Connection;

enum class Method : std::uint8_t { get, head, post, options, other };

struct HttpRequest {
  Method method = Method::get;
  std::string method_name;
  std::string path;  // of the target, without the query; not decoded
  std::string body;
  std::string authorization;
  std::string content_type;
  std::string content_encoding;
  std::string request_id;  // X-Request-Id
  std::string origin;
  int version = 11;  // of HTTP, times ten
  bool keep_alive = true;
};

// A request that was refused while it was being read; the connection ends after the reply.
struct HttpRefusal {
  int status = 400;
  std::string message;
};

// Neither: the client left, or nothing more came in time.
struct HttpInput {
  std::optional<HttpRequest> request{};
  std::optional<HttpRefusal> refusal{};
};

// Waits for a request and reads it under the connection's limits and timeouts. While it waits for
// the first byte it also ends on Cancel::finish.
awaitable<HttpInput> read_request(Connection& connection);

}  // namespace quire
