#pragma once
// One address for servers that prefill and servers that decode: each request is begun by one and
// continued by another. Without servers that prefill it spreads requests. A thread per client.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host_guard.h"
#include "base/spelling.h"
#include "net/http_client.h"
#include "proxy/connection.h"
#include "proxy/push.h"
#include "proxy/servers.h"

namespace quire::proxy {

struct ProxyOptions {
  std::vector<net::Url> prefill;
  std::vector<net::Url> decode;  // at least one
  std::string host = "127.0.0.1";
  std::string port = "8000";
  int max_connections = 256;  // one more takes the place of one that asks nothing, or gets 503
  std::chrono::milliseconds shutdown_timeout{30'000};  // for what is being answered
  std::vector<std::string> allowed_hosts;              // see HostGuard; * for all
  bool pushes = false;  // prefills are sent while they are computed
  Spelling spelling = nullptr;                         // of what clients are told
};

class Proxy {
 public:
  // Listens at once; throws Failure where it cannot.
  explicit Proxy(const ProxyOptions& options);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  std::uint16_t port() const;
  // Until stop(); then waits for the clients that are being answered, for a while.
  void run();
  void stop();  // from a signal handler too

 private:
  struct Session;
  bool make_room(std::list<Session>& sessions) const;  // false: all are being answered
  void begin_session(std::list<Session>& sessions, int socket);
  void end_sessions(std::list<Session>& sessions);
  void serve(Connection& client);
  // False: the connection ends.
  bool answer(Connection& client, const IncomingRequest& request);
  bool answer_by_decode(Connection& client, const IncomingRequest& request);
  // Of one whose prompt is pushed: when to give up, and what is asked where none waits for that.
  struct Pushing {
    std::function<bool()> gives_up;
    const IncomingRequest& whole;
  };
  // Empty: given up, and the client has seen nothing.
  std::optional<bool> try_decode(Connection& client, const IncomingRequest& request,
                                 const Pushing* pushing);
  // Empty: it is not to be pushed. The servers that failed, now or meanwhile, leave `turns`.
  std::optional<bool> answer_pushed(Connection& client, const IncomingRequest& request,
                                    std::vector<Turn>& turns);
  bool refuse(Connection& client, const IncomingRequest& request, int status,
              std::string_view message) const;
  // Empty: it was answered already. Else the body that goes on.
  std::optional<std::string> prefill(Connection& client, const IncomingRequest& request,
                                     const std::vector<Turn>& turns);

  const ProxyOptions options_;
  Servers prefill_, decode_;
  KvPlaces places_;
  const HostGuard hosts_;
  int listener_ = -1, stop_event_ = -1;
  std::atomic<bool> is_cut_ = false;
};

}  // namespace quire::proxy
