#pragma once
// HTTP/1.1 requests from tools, one at a time over a kept connection. Blocks; one thread per client.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/socket.h"
#include "net/url.h"

namespace quire::net {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method = "GET";
  Url url;
  Headers headers;
  std::string body;  // sent with its length; of a POST also where it is empty
};

struct Response {
  int status = 0;
  Headers headers;
  std::string body;  // unless a sink took it

  // The value of the last header of this name, in upper or lower case; empty: there is none.
  std::string_view header(std::string_view name) const;
};

// Takes the body piece by piece, as it comes, with the head complete. False: no more is wanted, and
// the connection is dropped.
using BodySink = std::function<bool(const Response& head, std::string_view piece)>;

class Client {
 public:
  explicit Client(Patience patience = {});
  ~Client();
  Client(Client&&) noexcept;

  // Throws Failure as Socket does, and unavailable for a reply that is no HTTP or ends early.
  // Redirects are not followed. Without a sink a body may have 64 MiB.
  Response send(const Request& request, const BodySink& sink = nullptr);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire::net
