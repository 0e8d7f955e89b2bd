#include "proxy/proxy.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <memory>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "proxy/bodies.h"
#include "proxy/watch.h"

namespace quire::proxy {
namespace {

using namespace std::chrono_literals;

int listen_at(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const auto fail = [&](const char* why) {
    throw Failure(Error{ErrorCode::unavailable,
                        fmt::format("cannot listen on {}:{}: {}", host, port, why), "ProxyOptions::port"});
  };
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    fail(gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  const int socket = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket, found->ai_addr, found->ai_addrlen) != 0 || ::listen(socket, 128) != 0) {
    ::close(socket);
    fail(std::strerror(errno));
  }
  return socket;
}

std::string error_body(const std::string& message) {
  return fmt::format(
      R"({{"error":{{"message":"{}","type":"proxy_error","param":null,"code":502}}}})", message);
}

// What a server reads of a request's head; the rest is the connection's, or nothing to it.
constexpr std::array<const char*, 14> kHandedOn{"Authorization",
                                                "X-Api-Key",
                                                "Content-Type",
                                                "Content-Encoding",
                                                "Accept",
                                                "X-Request-Id",
                                                "Traceparent",
                                                "Tracestate",
                                                "X-Request-Timeout",
                                                "X-Data-Parallel-Rank",
                                                "Origin",
                                                "Access-Control-Request-Method",
                                                "Access-Control-Request-Headers",
                                                "Access-Control-Request-Private-Network"};
// And of an answer's, what a client needs.
constexpr std::array<const char*, 14> kHandedBack{"Content-Type",
                                                  "X-Request-Id",
                                                  "Retry-After",
                                                  "Cache-Control",
                                                  "WWW-Authenticate",
                                                  "Allow",
                                                  "Location",
                                                  "Vary",
                                                  "Access-Control-Allow-Origin",
                                                  "Access-Control-Allow-Methods",
                                                  "Access-Control-Allow-Headers",
                                                  "Access-Control-Expose-Headers",
                                                  "Access-Control-Max-Age",
                                                  "Access-Control-Allow-Credentials"};

Headers handed_back(const net::Response& answer) {
  Headers headers;
  for (const char* name : kHandedBack)
    if (const auto value = answer.header(name); !value.empty())
      headers.emplace_back(name, std::string(value));
  return headers;
}

// A target that is no path would be read as something else behind the server's own.
bool is_target(const IncomingRequest& request) {
  return request.target.starts_with('/') || (request.method == "OPTIONS" && request.target == "*");
}

// What goes on to a server: who asks, and under which name.
net::Request request_to(const net::Url& server, const IncomingRequest& request,
                        const std::string& body) {
  net::Request out;
  out.method = request.method;
  out.url = server.with_path(request.target);
  out.body = body;
  for (const char* name : kHandedOn)
    if (const auto value = request.header(name); !value.empty())
      out.headers.emplace_back(name, std::string(value));
  return out;
}

// Beyond --max-connections: without reading, so that nobody is waited for.
void refuse(int socket) {
  constexpr std::string_view kFull =
      "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
      "Connection: close\r\n\r\n";
  ::send(socket, kFull.data(), kFull.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket, SHUT_WR);
  ::close(socket);
}

bool may_retry(int status) { return status == 502 || status == 503 || status == 504; }

}  // namespace

struct Proxy::Session {
  std::thread thread;
  std::atomic<bool> ended = false;
};

Proxy::Proxy(const ProxyOptions& options)
    : options_(options),
      prefill_(options.prefill),
      decode_(options.decode),
      listener_(listen_at(options.host, options.port)),
      stop_event_(::eventfd(0, EFD_CLOEXEC)) {}

Proxy::~Proxy() {
  ::close(listener_);
  ::close(stop_event_);
}

std::uint16_t Proxy::port() const {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&name), &size);
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

void Proxy::stop() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(stop_event_, &one, sizeof one);
}

void Proxy::run() {
  std::list<Session> sessions;
  const auto reap = [&] {
    sessions.remove_if([](Session& session) {
      if (!session.ended) return false;
      session.thread.join();
      return true;
    });
  };
  while (true) {
    pollfd waiting[2] = {{listener_, POLLIN, 0}, {stop_event_, POLLIN, 0}};
    if (::poll(waiting, 2, -1) < 0) continue;
    if (waiting[1].revents != 0) break;
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    reap();
    if (socket < 0) {  // the client left; or there are no descriptors, and the listener stays ready
      std::this_thread::sleep_for(20ms);
      continue;
    }
    if (static_cast<int>(sessions.size()) >= options_.max_connections) {
      refuse(socket);
      log::warn("proxy.full", {{"connections", options_.max_connections}});
      continue;
    }
    Session& session = sessions.emplace_back();
    session.thread = std::thread([this, socket, &session] {
      serve(socket);
      session.ended = true;
    });
  }
  for (Session& session : sessions) session.thread.join();
}

void Proxy::serve(int socket) {
  Connection client(socket, stop_event_);
  while (auto request = client.read_request()) {
    try {
      if (!answer(client, *request) || !request->keep_alive) return;
    } catch (const std::exception& e) {
      log::error("proxy.failed", {{"error", e.what()}});
      return;
    }
  }
}

bool Proxy::answer(Connection& client, const IncomingRequest& request) {
  if (!is_target(request))
    return client.reply(400, "text/plain", "the target must be a path\n", request.keep_alive);
  if (request.method == "POST" && !prefill_.empty()) {
    const auto body = prefill(client, request);
    if (!body) return !client.has_left();
    IncomingRequest rest = request;
    rest.body = *body;
    return answer_by(client, rest, decode_);
  }
  return answer_by(client, request, decode_);
}

// A server that cannot is no reason to fail: whoever decodes can prefill too.
std::optional<std::string> Proxy::prefill(Connection& client, const IncomingRequest& request) {
  const auto body = body_for_prefill(request.target, request.body);
  if (!body) return request.body;
  for (const net::Url& server : prefill_.in_turn()) {
    Watch watch(client, server);
    try {
      net::Client upstream(watch.patience());
      const net::Response answer = upstream.send(request_to(server, request, *body));
      if (may_retry(answer.status)) {
        prefill_.failed(server);
        continue;
      }
      prefill_.answered(server);
      if (answer.status == 200) return body_for_decode(request.body, kept_params(answer.body));
      if (client.begin(answer.status, handed_back(answer), answer.body.size(),
                       request.keep_alive) &&
          client.piece(answer.body))
        client.end();
      return std::nullopt;
    } catch (const Failure& failure) {
      if (failure.error().code == ErrorCode::cancelled && !watch.is_server_dead())
        return std::nullopt;
      prefill_.failed(server);
      log::warn("proxy.no_prefill", {{"server", server.text()}, {"error", failure.what()}});
    }
  }
  return request.body;
}

bool Proxy::answer_by(Connection& client, const IncomingRequest& request, Servers& servers) {
  const auto order = servers.in_turn();
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Leg leg = relay(client, request, order[i], request.body);
    if (leg == Leg::client_left) return false;
    if (leg == Leg::answered) return servers.answered(order[i]), true;
    servers.failed(order[i]);
  }
  return client.reply(502, "application/json", error_body("no server that decodes can be reached"),
                      request.keep_alive);
}

// Once a byte of an answer has gone out, there is no other try: the client sees its end missing.
Proxy::Leg Proxy::relay(Connection& client, const IncomingRequest& request, const net::Url& server,
                        const std::string& body) {
  bool begun = false, client_there = true;
  const auto begin = [&](const net::Response& head, std::optional<std::size_t> length) {
    begun = true;
    return client.begin(head.status, handed_back(head), length, request.keep_alive);
  };
  Watch watch(client, server);
  try {
    net::Client upstream(watch.patience());
    const net::Response answer = upstream.send(
        request_to(server, request, body), [&](const net::Response& head, std::string_view piece) {
          watch.heard();
          if (!begun && may_retry(head.status)) return false;
          client_there = (begun || begin(head, std::nullopt)) && client.piece(piece);
          return client_there;
        });
    if (!client_there) return Leg::client_left;
    if (!begun && may_retry(answer.status)) return Leg::try_next;
    if (!begun) return begin(answer, 0) ? Leg::answered : Leg::client_left;
    return client.end() ? Leg::answered : Leg::client_left;
  } catch (const Failure& failure) {
    const bool client_left =
        failure.error().code == ErrorCode::cancelled && !watch.is_server_dead();
    if (begun || client_left) return Leg::client_left;
    log::warn("proxy.no_answer", {{"server", server.text()}, {"error", failure.what()}});
    return Leg::try_next;
  }
}

}  // namespace quire::proxy
