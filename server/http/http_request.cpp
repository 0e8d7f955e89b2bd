#include "server/http/http_request.h"

#include <fmt/format.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/http/connection.h"

namespace quire {

namespace {

namespace http = boost::beast::http;
using Parser = http::request_parser<http::string_body>;
using boost::system::error_code;

constexpr std::size_t kMaxPathBytes = 2048;

HttpRefusal refusal_of(error_code error, const HttpLimits& limits) {
  if (error == http::error::body_limit) {
    return {413, fmt::format("The request body is larger than {} bytes", limits.body_bytes)};
  }
  if (error == http::error::header_limit) {
    return {431, fmt::format("The request header is larger than {} bytes", limits.header_bytes)};
  }
  return {400, fmt::format("Not a valid HTTP request: {}", error.message())};
}

Method method_of(http::verb verb) {
  switch (verb) {
    case http::verb::get:
      return Method::get;
    case http::verb::head:
      return Method::head;
    case http::verb::post:
      return Method::post;
    case http::verb::options:
      return Method::options;
    default:
      return Method::other;
  }
}

HttpRequest take_request(Parser& parser) {
  auto& message = parser.get();
  const auto header = [&](auto name) { return std::string(message[name]); };
  HttpRequest request;
  request.method = method_of(message.method());
  request.method_name = std::string(message.method_string());
  const std::string_view target = message.target();
  request.path = std::string(target.substr(0, target.find_first_of("?#")));
  request.authorization = header(http::field::authorization);
  request.content_type = header(http::field::content_type);
  request.content_encoding = header(http::field::content_encoding);
  request.request_id = header("X-Request-Id");
  request.origin = header(http::field::origin);
  request.version = message.version();
  request.keep_alive = message.keep_alive();
  request.body = std::move(message.body());
  return request;
}

// A filter that lets Cancel::finish through, or not. What was cancelled before stays cancelled.
awaitable<void> let_finish_through(bool through) {
  const auto state = co_await asio::this_coro::cancellation_state;
  if (state.cancelled() != asio::cancellation_type::none) {
    throw boost::system::system_error(asio::error::operation_aborted);
  }
  if (through) {
    co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());
  } else {
    co_await asio::this_coro::reset_cancellation_state(asio::enable_terminal_cancellation());
  }
}

// Feeds the parser until `done`. An error that is no error code is the client's end or deadline.
awaitable<HttpInput> parse_until(Connection& connection, Parser& parser, bool (*done)(Parser&)) {
  const HttpLimits& limits = connection.limits();
  while (!done(parser)) {
    error_code error;
    const auto input = connection.input();
    connection.consume(parser.put(asio::buffer(input.data(), input.size()), error));
    if (error && error != http::error::need_more)
      co_return HttpInput{{}, refusal_of(error, limits)};
    if (done(parser)) break;
    if (connection.input().size() > limits.header_bytes && !parser.is_header_done()) {
      co_return HttpInput{{}, refusal_of(http::error::header_limit, limits)};
    }
    if (error != http::error::need_more && !connection.input().empty()) continue;
    if (co_await connection.fill()) continue;
    if (!connection.timed_out()) co_return HttpInput{};
    co_return HttpInput{{}, HttpRefusal{408, "The request did not arrive in time"}};
  }
  co_return HttpInput{HttpRequest{}, {}};
}

bool header_done(Parser& parser) { return parser.is_header_done(); }
bool all_done(Parser& parser) { return parser.is_done(); }

bool expects_continue(Parser& parser) {
  return !parser.is_done() &&
         boost::beast::iequals(parser.get()[http::field::expect], "100-continue");
}

}  // namespace

awaitable<HttpInput> read_request(Connection& connection) {
  const HttpLimits& limits = connection.limits();
  if (connection.input().empty()) {
    connection.set_deadline(limits.keep_alive_timeout);
    co_await let_finish_through(true);
    const bool came = co_await connection.fill();
    co_await let_finish_through(false);
    if (!came) co_return HttpInput{};
  }

  Parser parser;
  parser.eager(true);
  parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
  parser.body_limit(limits.body_bytes);
  connection.set_deadline(limits.header_timeout);
  if (auto head = co_await parse_until(connection, parser, header_done); !head.request) {
    co_return head;
  }
  if (parser.get().target().size() > kMaxPathBytes) {
    co_return HttpInput{{}, HttpRefusal{414, "The request target is too long"}};
  }
  connection.set_deadline(limits.body_timeout);
  if (expects_continue(parser)) {
    if (!co_await connection.write("HTTP/1.1 100 Continue\r\n\r\n")) co_return HttpInput{};
  }
  if (auto rest = co_await parse_until(connection, parser, all_done); !rest.request) co_return rest;
  connection.clear_deadline();
  co_return HttpInput{take_request(parser), {}};
}

}  // namespace quire
