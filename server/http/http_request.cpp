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
#include "server/http/head_rules.h"

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
    case http::verb::delete_:
      return Method::delete_;
    case http::verb::options:
      return Method::options;
    default:
      return Method::other;
  }
}

HttpRequest request_of(const Parser& parser) {
  const auto& message = parser.get();
  const auto header = [&](auto name) { return std::string(message[name]); };
  HttpRequest request;
  request.method = method_of(message.method());
  request.method_name = std::string(message.method_string());
  const std::string_view target = message.target();
  request.path = std::string(target.substr(0, target.find_first_of("?#")));
  request.authorization = header(http::field::authorization);
  request.api_key = header("X-Api-Key");
  request.accept = header(http::field::accept);
  request.content_type = header(http::field::content_type);
  request.content_encoding = header(http::field::content_encoding);
  request.request_id = header("X-Request-Id");
  request.host = header(http::field::host);
  request.origin = header(http::field::origin);
  request.traceparent = header("traceparent");
  request.timeout = header("X-Request-Timeout");
  request.version = message.version();
  request.keep_alive = message.keep_alive();
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

bool expects_continue(const Parser& parser) {
  return !parser.is_done() &&
         boost::beast::iequals(parser.get()[http::field::expect], "100-continue");
}

// How one round of input ended.
enum class Fed { more, left, refused };

}  // namespace

struct RequestReader::Parsing {
  Parser parser;
  HttpRefusal refusal;

  explicit Parsing(const HttpLimits& limits) {
    parser.eager(false);  // put() ends where the head does
    parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
    parser.body_limit(limits.body_bytes);
  }

  Fed refuse(HttpRefusal why) {
    refusal = std::move(why);
    return Fed::refused;
  }

  // Gives the parser what has come, and waits for more when that is not enough for a step.
  awaitable<Fed> feed(Connection& connection) {
    const HttpLimits& limits = connection.limits();
    error_code error;
    const auto input = connection.input();
    const bool in_head = !parser.is_header_done();
    const std::size_t used = parser.put(asio::buffer(input.data(), input.size()), error);
    if (error && error != http::error::need_more) co_return refuse(refusal_of(error, limits));
    if (in_head && parser.is_header_done()) {
      if (const auto why = fault_of_head(input.substr(0, used), parser.get())) {
        co_return refuse({400, *why});
      }
    }
    connection.consume(used);
    if (parser.is_done() || (in_head && parser.is_header_done())) co_return Fed::more;
    if (connection.input().size() > limits.header_bytes && in_head) {
      co_return refuse(refusal_of(http::error::header_limit, limits));
    }
    if (error != http::error::need_more && !connection.input().empty()) co_return Fed::more;
    if (co_await connection.fill()) co_return Fed::more;
    if (!connection.timed_out()) co_return Fed::left;
    co_return refuse({408, "The request did not arrive in time"});
  }
};

RequestReader::RequestReader(Connection& connection) : connection_(connection) {}
RequestReader::~RequestReader() = default;

bool RequestReader::is_unfinished() const { return parsing_ && !parsing_->parser.is_done(); }

awaitable<HttpHead> RequestReader::read_head(std::chrono::milliseconds idle_limit) {
  const HttpLimits& limits = connection_.limits();
  if (connection_.input().empty()) {
    connection_.set_deadline(idle_limit);
    co_await let_finish_through(true);
    const bool came = co_await connection_.fill();
    co_await let_finish_through(false);
    if (!came) co_return HttpHead{};
  }

  parsing_ = std::make_unique<Parsing>(limits);
  connection_.set_deadline(limits.header_timeout);
  while (!parsing_->parser.is_header_done()) {
    const Fed fed = co_await parsing_->feed(connection_);
    if (fed == Fed::left) co_return HttpHead{};
    if (fed == Fed::refused) co_return HttpHead{{}, parsing_->refusal};
  }
  connection_.clear_deadline();
  if (parsing_->parser.get().target().size() > kMaxPathBytes) {
    co_return HttpHead{{}, HttpRefusal{414, "The request target is too long"}};
  }
  co_return HttpHead{request_of(parsing_->parser), {}};
}

awaitable<HttpBody> RequestReader::read_body(ByteBudget::Share& share) {
  Parser& parser = parsing_->parser;
  connection_.set_deadline(connection_.limits().body_timeout);
  if (expects_continue(parser)) {
    if (!co_await connection_.write("HTTP/1.1 100 Continue\r\n\r\n")) co_return HttpBody{};
  }
  parser.eager(true);
  while (!parser.is_done()) {
    const Fed fed = co_await parsing_->feed(connection_);
    if (fed == Fed::left) co_return HttpBody{};
    if (fed == Fed::refused) co_return HttpBody{{}, parsing_->refusal};
    if (!share.grow_to(parser.get().body().size())) {
      co_return HttpBody{{},
                         HttpRefusal{503,
                                     "Too many bytes of request bodies are in flight "
                                     "(HttpLimits::body_bytes_in_flight)"}};
    }
  }
  connection_.clear_deadline();
  co_return HttpBody{std::move(parser.get().body()), {}};
}

}  // namespace quire
