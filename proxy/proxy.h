#pragma once
// One address for servers that prefill and servers that decode: each request is begun by one and
// continued by another. Without servers that prefill it spreads requests. A thread per client.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "net/http_client.h"
#include "proxy/connection.h"
#include "proxy/servers.h"

namespace quire::proxy {

struct ProxyOptions {
  std::vector<net::Url> prefill;
  std::vector<net::Url> decode;  // at least one
  std::string host = "127.0.0.1";
  std::string port = "8000";
  int max_connections = 256;
};

class Proxy {
 public:
  // Listens at once; throws Failure where it cannot.
  explicit Proxy(const ProxyOptions& options);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  std::uint16_t port() const;
  // Until stop(); then waits for the clients that are being answered.
  void run();
  void stop();  // from a signal handler too

 private:
  struct Session;
  void serve(int socket);
  bool answer(Connection& client, const IncomingRequest& request);
  bool answer_by(Connection& client, const IncomingRequest& request, Servers& servers);
  // Empty: it was answered already. Else the body that goes on.
  std::optional<std::string> prefill(Connection& client, const IncomingRequest& request);
  enum class Leg : std::uint8_t { answered, client_left, try_next };
  Leg relay(Connection& client, const IncomingRequest& request, const net::Url& server,
            const std::string& body);

  const ProxyOptions options_;
  Servers prefill_, decode_;
  int listener_ = -1, stop_event_ = -1;
  std::atomic<int> sessions_ = 0;
};

}  // namespace quire::proxy
