#include "server/http/http_request.h"

#include <fmt/format.h>

#include <algorithm>
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
constexpr int kMostEmptyLines = 16;  // before a request

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

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// %2F is a slash: the official clients write a model's name so. What is no escape stays.
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size();
    const int high = escape ? hex_digit(text[i + 1]) : -1, low = escape ? hex_digit(text[i + 2]) : -1;
    const bool valid = high >= 0 && low >= 0;
    decoded += valid ? static_cast<char>(high * 16 + low) : text[i];
    if (valid) i += 2;
  }
  return decoded;
}

bool has_control_characters(std::string_view text) {
  return std::ranges::any_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

// A target may be a whole URL, as for a proxy; its authority then stands in for Host.
struct Target {
  std::string_view path, query;
  std::optional<std::string_view> authority = {};
};

Target split_query(std::string_view target) {
  target = target.substr(0, target.find('#'));
  const auto mark = std::min(target.find('?'), target.size());
  return {target.substr(0, mark), target.substr(std::min(mark + 1, target.size()))};
}

Target split_target(std::string_view target) {
  const auto colon = target.find("://");
  const auto scheme = target.substr(0, colon == target.npos ? 0 : colon);
  if (boost::beast::iequals(scheme, "http") || boost::beast::iequals(scheme, "https")) {
    const auto rest = target.substr(colon + 3);
    const auto end = std::min(rest.find_first_of("/?#"), rest.size());
    const auto authority = rest.substr(0, end);
    Target split = split_query(rest.substr(end));
    if (split.path.empty()) split.path = "/";
    split.authority = authority;
    return split;
  }
  return split_query(target);
}

HttpRequest request_of(const Parser& parser) {
  const auto& message = parser.get();
  const auto header = [&](auto name) { return std::string(message[name]); };
  HttpRequest request;
  request.method = method_of(message.method());
  request.method_name = std::string(message.method_string());
  const Target target = split_target(message.target());
  request.path = percent_decoded(target.path);
  request.query = std::string(target.query);
  request.authorization = header(http::field::authorization);
  request.api_key = header("X-Api-Key");
  request.accept = header(http::field::accept);
  request.content_type = header(http::field::content_type);
  request.content_encoding = header(http::field::content_encoding);
  request.request_id = header("X-Request-Id");
  request.host = target.authority ? std::string(*target.authority) : header(http::field::host);
  request.origin = header(http::field::origin);
  request.traceparent = header("traceparent");
  request.timeout = header("X-Request-Timeout");
  request.engine = header("X-data-parallel-rank");
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
  return !parser.is_done() && parser.get().version() >= 11 &&
         boost::beast::iequals(parser.get()[http::field::expect], "100-continue");
}

// What every chunked body ends with, 0 CR LF CR LF: Beast 1.81 asserts that it comes in one piece,
// so no less is given to it.
constexpr std::size_t kLastChunkBytes = 5;

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
    const bool is_short = !in_head && parser.chunked() && input.size() < kLastChunkBytes &&
                          input.starts_with('0');
    if (is_short) error = http::error::need_more;
    const std::size_t used =
        is_short ? 0 : parser.put(asio::buffer(input.data(), input.size()), error);
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

// Until something comes that is no empty line: old clients end a body with one (RFC 9112, 2.2).
// False: the client left.
awaitable<bool> RequestReader::await_request(std::chrono::milliseconds idle_limit) {
  constexpr std::string_view kLine = "\r\n";
  for (int lines = 0; lines < kMostEmptyLines; ++lines) {
    while (kLine.starts_with(connection_.input()) && connection_.input() != kLine) {
      connection_.set_deadline(idle_limit);
      co_await let_finish_through(true);
      const bool came = co_await connection_.fill();
      co_await let_finish_through(false);
      if (!came) co_return false;
    }
    if (!connection_.input().starts_with(kLine)) break;
    connection_.consume(kLine.size());
  }
  co_return !connection_.input().empty();
}

awaitable<HttpHead> RequestReader::read_head(std::chrono::milliseconds idle_limit) {
  const HttpLimits& limits = connection_.limits();
  if (!co_await await_request(idle_limit)) co_return HttpHead{};

  parsing_ = std::make_unique<Parsing>(limits);
  connection_.set_deadline(limits.header_timeout);
  while (!parsing_->parser.is_header_done()) {
    const Fed fed = co_await parsing_->feed(connection_);
    if (fed == Fed::left) co_return HttpHead{};
    if (fed == Fed::refused) {
      HttpRefusal refusal = parsing_->refusal;
      refusal.path = percent_decoded(split_target(parsing_->parser.get().target()).path);
      if (has_control_characters(refusal.path)) refusal.path.clear();
      co_return HttpHead{{}, std::move(refusal)};
    }
  }
  connection_.clear_deadline();
  if (parsing_->parser.get().target().size() > kMaxPathBytes) {
    co_return HttpHead{{}, HttpRefusal{414, "The request target is too long"}};
  }
  HttpRequest request = request_of(parsing_->parser);
  if (has_control_characters(request.path)) {
    co_return HttpHead{{}, HttpRefusal{400, "The request target has control characters"}};
  }
  co_return HttpHead{std::move(request), {}};
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
