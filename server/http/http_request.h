#pragma once
// One HTTP request as the handlers see it, and its reading from a connection: first the head, then,
// where somebody wants it, the body.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/async.h"
#include "server/http/byte_budget.h"

namespace quire {

class Connection;

enum class Method : std::uint8_t { get, head, post, delete_, options, other };

// What is here is of the head; trailers are thrown away.
struct HttpRequest {
  Method method = Method::get;
  std::string method_name;
  std::string path;  // of the target, without the query; decoded
  std::string query;  // what follows the ?; not decoded
  std::string body;   // once it was asked for
  std::string authorization;
  std::string api_key;  // X-Api-Key
  std::string accept;
  std::string content_type;
  std::string content_encoding;
  std::string request_id;  // X-Request-Id
  std::string host;
  std::string origin;
  std::string traceparent;
  std::string timeout;  // X-Request-Timeout
  std::string engine;   // X-data-parallel-rank
  int version = 11;  // of HTTP, times ten
  bool keep_alive = true;
};

// A request that was refused while it was being read; the connection ends after the reply.
struct HttpRefusal {
  int status = 400;
  std::string message;
  std::string path = {};  // where the request line could be read
};

// Neither: the client left, or nothing more came in time.
struct HttpHead {
  std::optional<HttpRequest> request{};
  std::optional<HttpRefusal> refusal{};
};
struct HttpBody {
  std::optional<std::string> bytes{};
  std::optional<HttpRefusal> refusal{};
};

// Reads one request under the connection's limits and timeouts.
class RequestReader {
 public:
  explicit RequestReader(Connection& connection);
  ~RequestReader();

  // While it waits for the first byte it also ends on Cancel::finish.
  awaitable<HttpHead> read_head(std::chrono::milliseconds idle_limit);
  // What the body takes is counted in the share as it comes.
  awaitable<HttpBody> read_body(ByteBudget::Share& share);
  // Bytes of this request are still to come: the connection cannot carry another one after it.
  bool is_unfinished() const;

 private:
  struct Parsing;
  awaitable<bool> await_request(std::chrono::milliseconds idle_limit);

  Connection& connection_;
  std::unique_ptr<Parsing> parsing_;  // from the first byte on: idle connections are many
};

}  // namespace quire
