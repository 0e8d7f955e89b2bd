#include "proxy/relay.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "proxy/errors.h"
#include "proxy/heads.h"
#include "proxy/watch.h"

namespace quire::proxy {
namespace {

constexpr std::size_t kMostRefusal = 64 << 10;  // bytes
constexpr const char* kEnds = "The proxy is shutting down";

// Of an answer without a body: that to HEAD says how long the one to GET is.
std::size_t length_of(const net::Response& head) {
  const std::string_view text = head.header("Content-Length");
  std::size_t length = 0;
  std::from_chars(text.data(), text.data() + text.size(), length);
  return length;
}

// An answer that goes on to the client as it comes.
class Passage {
 public:
  Passage(Connection& client, const IncomingRequest& request)
      : client_(client), request_(request) {}

  bool has_begun() const { return has_begun_; }
  // All are false once the client has left.
  bool take(const net::Response& head, std::string_view piece) {
    if (!has_begun_ && !begin(head, std::nullopt)) return false;
    return client_.piece(is_events_ ? events_.push(piece) : piece);
  }
  bool end(const net::Response& head) {
    if (!has_begun_) return begin(head, length_of(head));
    return client_.piece(events_.rest()) && client_.end();
  }
  bool break_off(const char* why) {
    return is_events_ && client_.piece(error_event(request_.target, why)) && client_.end();
  }

 private:
  bool begin(const net::Response& head, std::optional<std::size_t> length) {
    has_begun_ = true;
    is_events_ = head.header("Content-Type").starts_with("text/event-stream");
    return client_.begin(head.status, handed_back(head), length, request_.keep_alive);
  }

  Connection& client_;
  const IncomingRequest& request_;
  EventPieces events_;
  bool has_begun_ = false, is_events_ = false;
};

}  // namespace

bool may_retry(int status) { return status == 502 || status == 503 || status == 504; }

Relayed relay(Connection& client, const IncomingRequest& request, const net::Url& server,
              const std::function<bool()>& gives_up) {
  Passage passage(client, request);
  std::string refusal;
  bool client_there = true;
  Watch watch(client, server);
  const auto is_given_up = [&] { return gives_up && !passage.has_begun() && gives_up(); };
  net::Patience patience = watch.patience();
  patience.stopped = [&, ends = std::move(patience.stopped)] { return ends() || is_given_up(); };
  try {
    net::Client upstream(patience);
    net::Response answer = upstream.send(request_to(server, request, request.body),
                                         [&](const net::Response& head, std::string_view piece) {
                                           watch.heard();
                                           if (may_retry(head.status)) {
                                             refusal += piece;
                                             return refusal.size() <= kMostRefusal;
                                           }
                                           return client_there = passage.take(head, piece);
                                         });
    if (may_retry(answer.status)) {
      answer.body = std::move(refusal);
      return {Leg::refused, std::move(answer)};
    }
    return {client_there && passage.end(answer) ? Leg::answered : Leg::client_left};
  } catch (const Failure& failure) {
    if (failure.error().code == ErrorCode::cancelled && !watch.is_server_dead()) {
      if (!client.has_left() && is_given_up()) return {Leg::given_up};
      if (!client.is_cut()) return {Leg::client_left};
      passage.has_begun() ? void(passage.break_off(kEnds)) : refuse_cut(client, request);
      return {Leg::client_left};
    }
    log::warn(passage.has_begun() ? "proxy.broken" : "proxy.no_answer",
              {{"server", server.text()}, {"path", request.target}, {"error", failure.what()}});
    if (!passage.has_begun()) return {Leg::unreachable};
    const bool is_told = passage.break_off("The server's answer broke off: the server was lost");
    return {is_told ? Leg::broken : Leg::client_left};
  }
}

void refuse_cut(Connection& client, const IncomingRequest& request) {
  client.reply(503, "application/json", error_body(request.target, 503, kEnds), false);
}

}  // namespace quire::proxy
