#include "proxy/proxy.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "proxy/bodies.h"
#include "proxy/errors.h"
#include "proxy/heads.h"
#include "proxy/relay.h"
#include "proxy/watch.h"

namespace quire::proxy {
namespace {

using namespace std::chrono_literals;

constexpr auto kIdle = 1s;  // then a connection may have to make room

int listen_at(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const auto fail = [&](const char* why) {
    throw Failure(Error{ErrorCode::unavailable,
                        fmt::format("cannot listen on {}:{}: {}", host, port, why),
                        "ProxyOptions::port"});
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

// Without reading, so that nobody is waited for.
void refuse_unread(int socket, std::string_view message) {
  const std::string body = error_body("", 503, message);
  const std::string answer = fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
      body.size(), body);
  ::send(socket, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket, SHUT_WR);
  ::close(socket);
}

bool hand_back(Connection& client, const IncomingRequest& request, const net::Response& answer) {
  return client.begin(answer.status, handed_back(answer), answer.body.size(), request.keep_alive) &&
         client.piece(answer.body) && client.end();
}

}  // namespace

struct Proxy::Session {
  std::thread thread;
  std::atomic<bool> ended = false;
  bool sent_away = false;  // of the thread that accepts
  std::mutex closing;      // what follows
  int socket;              // -1: it is, or will be, closed
  const Connection* client = nullptr;

  explicit Session(int s) : socket(s) {}

  std::chrono::steady_clock::rep idle_since() {
    const std::lock_guard lock(closing);
    if (client == nullptr) return 0;
    pollfd next{socket, POLLIN, 0};  // a request that waits to be read
    return ::poll(&next, 1, 0) > 0 ? 0 : client->idle_since();
  }
  void shut_down() {
    const std::lock_guard lock(closing);
    if (socket >= 0) ::shutdown(socket, SHUT_RDWR);
  }
};

Proxy::Proxy(const ProxyOptions& options)
    : options_(options),
      prefill_(options.prefill),
      decode_(options.decode),
      hosts_(options.host, false, options.allowed_hosts),
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
    if (!make_room(sessions)) {
      const std::string why = fmt::format(
          "All {} connections are being answered (ProxyOptions::max_connections)",
          options_.max_connections);
      refuse_unread(socket, options_.spelling ? options_.spelling(why) : why);
      log::warn("proxy.full", {{"connections", options_.max_connections}});
      continue;
    }
    begin_session(sessions, socket);
  }
  ::close(std::exchange(listener_, -1));
  end_sessions(sessions);
}

// Of connections that ask nothing the one that has been silent longest goes, if for a while: one
// that has just been opened is about to ask.
bool Proxy::make_room(std::list<Session>& sessions) const {
  const auto stays = [](const Session& session) { return !session.sent_away; };
  if (std::ranges::count_if(sessions, stays) < options_.max_connections) return true;
  Session* idle = nullptr;
  auto since = (std::chrono::steady_clock::now() - kIdle).time_since_epoch().count();
  for (Session& session : sessions) {
    if (session.sent_away) continue;
    const auto one = session.idle_since();
    if (one == 0 || one >= since) continue;
    idle = &session;
    since = one;
  }
  if (idle == nullptr) return false;
  idle->sent_away = true;
  idle->shut_down();
  return true;
}

void Proxy::begin_session(std::list<Session>& sessions, int socket) {
  Session& session = sessions.emplace_back(socket);
  session.thread = std::thread([this, &session] {
    {
      Connection client(session.socket, stop_event_, is_cut_);
      {
        const std::lock_guard lock(session.closing);
        session.client = &client;
      }
      serve(client);
      const std::lock_guard lock(session.closing);
      session.client = nullptr;
      session.socket = -1;
    }
    session.ended = true;
  });
}

// First in their own time, then with an error, then without a word to who does not read.
void Proxy::end_sessions(std::list<Session>& sessions) {
  const auto wait = [&](std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    const auto has_ended = [](const Session& session) { return session.ended.load(); };
    while (!std::ranges::all_of(sessions, has_ended) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(20ms);
  };
  wait(options_.shutdown_timeout);
  is_cut_ = true;
  wait(2s);
  for (Session& session : sessions) {
    session.shut_down();
    session.thread.join();
  }
}

void Proxy::serve(Connection& client) {
  while (auto request = client.read_request()) {
    try {
      if (!answer(client, *request) || !request->keep_alive) return;
    } catch (const std::exception& e) {
      log::error("proxy.failed", {{"error", e.what()}});
      return;
    }
  }
}

bool Proxy::refuse(Connection& client, const IncomingRequest& request, int status,
                   std::string_view message) const {
  return client.reply(status, "application/json", error_body(request.target, status, message),
                      request.keep_alive);
}

bool Proxy::answer(Connection& client, const IncomingRequest& request) {
  if (!is_target(request)) return refuse(client, request, 400, "The target must be a path");
  if (const auto host = request.header("Host"); !hosts_.allows(host)) {
    constexpr std::size_t kMaxEcho = 200;
    const auto why = fmt::format(
        "This proxy does not answer to the name {}: it listens on a loopback "
        "address. ProxyOptions::allowed_hosts adds a name",
        host.substr(0, kMaxEcho));
    return refuse(client, request, 403, options_.spelling ? options_.spelling(why) : why);
  }
  if (is_of_one_server(request.target)) {
    return refuse(client, request, 501,
                  "This is asked of each server at its own address: behind this one stand several");
  }
  if (request.method == "POST" && !prefill_.empty()) {
    std::vector<Turn> turns = prefill_.awake();
    if (options_.pushes)
      if (const auto answered = answer_pushed(client, request, turns)) return *answered;
    const auto body = prefill(client, request, turns);
    if (!body) return !client.has_left();
    IncomingRequest rest = request;
    rest.body = *body;
    return answer_by_decode(client, rest);
  }
  return answer_by_decode(client, request);
}

// A server that cannot is no reason to fail: whoever decodes can prefill too, and one that rests
// is not waited for.
std::optional<std::string> Proxy::prefill(Connection& client, const IncomingRequest& request,
                                          const std::vector<Turn>& turns) {
  const auto body = body_for_prefill(request.target, request.body);
  if (!body) return request.body;
  for (const auto& [server, is_doubtful] : turns) {
    if (is_doubtful && !is_alive(server, client)) {
      prefill_.failed(server);
      continue;
    }
    Watch watch(client, server);
    try {
      net::Client upstream(watch.patience());
      const net::Response answer = upstream.send(request_to(server, request, *body));
      if (answer.status == 502 || answer.status == 504) {
        prefill_.failed(server);
        continue;
      }
      prefill_.answered(server);
      if (may_retry(answer.status)) continue;
      places_.learn(server, answer);
      if (answer.status == 200) return body_for_decode(request.body, kept_params(answer.body));
      hand_back(client, request, answer);
      return std::nullopt;
    } catch (const Failure& failure) {
      if (failure.error().code == ErrorCode::cancelled && !watch.is_server_dead()) {
        if (client.is_cut()) refuse_cut(client, request);
        return std::nullopt;
      }
      prefill_.failed(server);
      log::warn("proxy.no_prefill", {{"server", server.text()}, {"error", failure.what()}});
    }
  }
  return request.body;
}

// The server that decodes waits for what is pushed; where the prefill fails before any of the
// answer has gone out, the next server is asked, and in the end the one that decodes does it all.
std::optional<bool> Proxy::answer_pushed(Connection& client, const IncomingRequest& request,
                                         std::vector<Turn>& turns) {
  if (!body_for_prefill(request.target, request.body)) return std::nullopt;
  while (!turns.empty()) {
    const auto [server, is_doubtful] = turns.front();
    if (is_doubtful && !is_alive(server, client)) {
      prefill_.failed(server);
      turns.erase(turns.begin());
      continue;
    }
    const auto place = places_.find(server);
    if (!place) return std::nullopt;  // its first answer says where it is
    turns.erase(turns.begin());
    const std::string name = new_push_name();
    const auto body = body_for_prefill(request.target, request.body, name);
    IncomingRequest rest = request;  // over NIXL servers find by this id what belongs together
    if (request.header("X-Request-Id").empty()) rest.headers.emplace_back("X-Request-Id", name);
    rest.body = body_for_decode(request.body, pushed_params(name, *place));
    PushedPrefill pushed(client, server, request_to(server, rest, *body), places_);
    const Pushing pushing{[&] { return pushed.has_failed(); }, request};
    const auto answered = try_decode(client, rest, &pushing);
    const PushedPrefill::State state = pushed.end();
    if (state == PushedPrefill::State::unreachable) {
      prefill_.failed(server);
    } else if (pushed.answer().status != 0) {
      prefill_.answered(server);
    }
    if (answered) return answered;
    if (state == PushedPrefill::State::refused) return hand_back(client, request, pushed.answer());
    std::erase_if(turns, [&](const Turn& turn) {
      return !turn.is_doubtful && prefill_.is_resting(turn.url);
    });
  }
  return answer_by_decode(client, request);
}

bool Proxy::answer_by_decode(Connection& client, const IncomingRequest& request) {
  return try_decode(client, request, nullptr).value_or(false);
}

// Where all that can be reached refuse, the last one's words are the answer. One that is lost may
// have taken what was pushed, which comes only once: the next one does it all.
std::optional<bool> Proxy::try_decode(Connection& client, const IncomingRequest& request,
                                      const Pushing* pushing) {
  const IncomingRequest* asked = &request;
  std::optional<net::Response> refusal;
  for (const auto& [server, is_doubtful] : decode_.all()) {
    if (is_doubtful && !is_alive(server, client)) {
      decode_.failed(server);
      continue;
    }
    Relayed relayed =
        relay(client, *asked, server, pushing ? pushing->gives_up : std::function<bool()>());
    if (relayed.leg == Leg::given_up) return std::nullopt;
    const bool is_busy = relayed.leg == Leg::refused && relayed.refusal.status == 503;
    if (relayed.leg == Leg::client_left) return false;
    relayed.leg == Leg::answered || is_busy ? decode_.answered(server) : decode_.failed(server);
    if (relayed.leg == Leg::answered || relayed.leg == Leg::broken) return true;
    if (!is_busy && pushing != nullptr) asked = &std::exchange(pushing, nullptr)->whole;
    if (is_busy || (relayed.leg == Leg::refused && (!refusal || refusal->status != 503)))
      refusal = std::move(relayed.refusal);
  }
  if (!refusal) return refuse(client, request, 502, "no server that decodes can be reached");
  return hand_back(client, request, *refusal);
}

}  // namespace quire::proxy
