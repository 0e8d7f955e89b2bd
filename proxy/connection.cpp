#include "proxy/connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <chrono>

#include "proxy/errors.h"

namespace quire::proxy {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

constexpr std::size_t kMostBody = 64 << 20, kMostHead = 64 << 10, kRead = 64 << 10;  // bytes
constexpr int kSilence = 60'000;                                                     // ms
constexpr std::chrono::seconds kRequest{120};  // from its first byte to its last

}  // namespace

std::string_view IncomingRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (boost::beast::iequals(key, name)) return value;
  return {};
}

struct Connection::State {
  int socket, stop_event;
  const std::atomic<bool>& is_cut;
  boost::beast::flat_buffer buffer{};
  bool chunked = false;
  bool until_end = false;  // the body ends with the connection
  int version = 11;
  std::atomic<std::chrono::steady_clock::rep> idle_since = 0;

  void rest() { idle_since = std::chrono::steady_clock::now().time_since_epoch().count(); }

  // 0: nothing more comes.
  std::size_t read_some() {
    pollfd waiting[2] = {{socket, POLLIN, 0}, {stop_event, POLLIN, 0}};
    if (::poll(waiting, 2, kSilence) <= 0 || waiting[1].revents != 0) return 0;
    const auto space = buffer.prepare(kRead);
    const ssize_t count = ::recv(socket, space.data(), space.size(), 0);
    if (count <= 0) return 0;
    idle_since = 0;
    buffer.commit(static_cast<std::size_t>(count));
    return static_cast<std::size_t>(count);
  }

  bool write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0 && errno != EINTR) return false;
      if (count > 0) bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
};

Connection::Connection(int socket, int stop_event, const std::atomic<bool>& is_cut)
    : state_(new State{socket, stop_event, is_cut}) {
  const timeval patience{.tv_sec = kSilence / 1000, .tv_usec = 0};  // of a reader that is slow
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

Connection::~Connection() { ::close(state_->socket); }

std::chrono::steady_clock::rep Connection::idle_since() const { return state_->idle_since; }

bool Connection::is_cut() const { return state_->is_cut; }

bool Connection::has_left() const {
  if (is_cut()) return true;
  pollfd waiting{state_->socket, POLLRDHUP, 0};
  return ::poll(&waiting, 1, 0) > 0;
}

std::optional<IncomingRequest> Connection::read_request() {
  http::request_parser<http::string_body> parser;
  parser.eager(true);
  parser.body_limit(kMostBody);
  parser.header_limit(kMostHead);
  std::optional<std::chrono::steady_clock::time_point> end;
  if (state_->buffer.size() == 0) state_->rest();
  const auto refuse = [&](int status, std::string_view message) {
    const std::string target(parser.get().target());
    reply(status, "application/json", error_body(target, status, message), false);
  };
  while (!parser.is_done()) {
    error_code error = http::error::need_more;
    if (state_->buffer.size() > 0) state_->buffer.consume(parser.put(state_->buffer.data(), error));
    if (error && error != http::error::need_more) {
      const bool is_large = error == http::error::body_limit || error == http::error::header_limit;
      refuse(is_large ? 413 : 400, error.message());
      return std::nullopt;
    }
    if (parser.is_done()) break;
    const auto now = std::chrono::steady_clock::now();
    if (parser.got_some() && !end) end = now + kRequest;
    if (end && now >= *end) {
      refuse(408, "The request did not end in time");
      return std::nullopt;
    }
    if (state_->read_some() == 0) return std::nullopt;
    if (parser.is_header_done() &&
        boost::beast::iequals(parser.get()[http::field::expect], "100-continue"))
      state_->write("HTTP/1.1 100 Continue\r\n\r\n");
  }
  IncomingRequest request;
  request.method = parser.get().method_string();
  request.target = parser.get().target();
  request.keep_alive = parser.get().keep_alive();
  request.version = state_->version = static_cast<int>(parser.get().version());
  for (const auto& field : parser.get())
    request.headers.emplace_back(field.name_string(), field.value());
  request.body = std::move(parser.get().body());
  return request;
}

bool Connection::reply(int status, std::string_view type, std::string_view body, bool keep_alive) {
  const Headers headers{{"Content-Type", std::string(type)}};
  return begin(status, headers, body.size(), keep_alive) && piece(body) && end();
}

bool Connection::begin(int status, const Headers& headers, std::optional<std::size_t> length,
                       bool keep_alive) {
  std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\n", status,
      std::string_view(http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)))));
  for (const auto& [name, value] : headers) head += fmt::format("{}: {}\r\n", name, value);
  const bool has_body = status >= 200 && status != 204 && status != 304;
  state_->until_end = has_body && !length && state_->version < 11;
  state_->chunked = has_body && !length && !state_->until_end;
  if (has_body && length) head += fmt::format("Content-Length: {}\r\n", *length);
  if (state_->chunked) head += "Transfer-Encoding: chunked\r\n";
  if (!keep_alive || state_->until_end) {
    head += "Connection: close\r\n";
  } else if (state_->version < 11) {
    head += "Connection: keep-alive\r\n";
  }
  head += "\r\n";
  return state_->write(head);
}

bool Connection::piece(std::string_view bytes) {
  if (bytes.empty()) return true;
  if (!state_->chunked) return state_->write(bytes);
  return state_->write(fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes));
}

bool Connection::end() {
  if (state_->chunked) return state_->write("0\r\n\r\n");
  return !state_->until_end;
}

}  // namespace quire::proxy
