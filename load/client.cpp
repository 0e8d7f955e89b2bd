#include "load/client.h"

#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "base/error.h"
#include "load/event_stream.h"

namespace quire::load {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

namespace {

constexpr auto kIdleTimeout = std::chrono::seconds(120);

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string first_line(std::string text) {
  if (const auto end = text.find('\n'); end != std::string::npos) text.resize(end);
  if (text.size() > 200) text.resize(200);
  return text;
}

}  // namespace

class Client::Connection {
 public:
  explicit Connection(asio::any_io_executor executor) : stream(std::move(executor)) {}
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
};

Target Target::parse(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) {
    throw Failure(ErrorCode::invalid_argument,
                  "--url: \"" + url + "\" does not begin with http://");
  }
  std::string rest = url.substr(kScheme.size());
  if (const auto slash = rest.find('/'); slash != std::string::npos) rest.resize(slash);
  const auto colon = rest.rfind(':');
  if (colon == std::string::npos) return {rest, "80", {}};
  return {rest.substr(0, colon), rest.substr(colon + 1), {}};
}

std::string_view name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::ok:
      return "ok";
    case Outcome::http_error:
      return "http_error";
    case Outcome::stream_error:
      return "stream_error";
    case Outcome::incomplete:
      return "incomplete";
    case Outcome::transport_error:
      return "transport_error";
  }
  return "unknown";
}

Client::Client(asio::any_io_executor executor, const Target& target, Clock::time_point begin)
    : executor_(std::move(executor)), target_(target), begin_(begin) {}
Client::~Client() = default;

asio::awaitable<void> Client::connect() {
  if (connection_) co_return;
  tcp::resolver resolver(executor_);
  const auto found =
      co_await resolver.async_resolve(target_.host, target_.port, asio::use_awaitable);
  auto connection = std::make_unique<Connection>(executor_);
  connection->stream.expires_after(kIdleTimeout);
  co_await connection->stream.async_connect(found, asio::use_awaitable);
  connection->stream.socket().set_option(tcp::no_delay(true));
  connection_ = std::move(connection);
}

asio::awaitable<Record> Client::post(const std::string& path, const std::string& body, double due) {
  Record record;
  record.due = due;
  record.sent = seconds_since(begin_);
  EventStream events;
  std::string reply;
  bool keep_alive = false;
  try {
    co_await connect();
    http::request<http::string_body> request{http::verb::post, path, 11};
    request.set(http::field::host, target_.host);
    request.set(http::field::content_type, "application/json");
    if (!target_.api_key.empty())
      request.set(http::field::authorization, "Bearer " + target_.api_key);
    request.body() = body;
    request.prepare_payload();
    auto& [stream, buffer] = *connection_;
    stream.expires_after(kIdleTimeout);
    record.sent = seconds_since(begin_);
    co_await http::async_write(stream, request, asio::use_awaitable);

    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    co_await http::async_read_header(stream, buffer, parser, asio::use_awaitable);
    record.status = static_cast<int>(parser.get().result_int());
    std::array<char, 16384> piece;
    double last = 0;
    while (!parser.is_done()) {
      parser.get().body().data = piece.data();
      parser.get().body().size = piece.size();
      boost::system::error_code error;
      stream.expires_after(kIdleTimeout);
      co_await http::async_read_some(stream, buffer, parser,
                                     asio::redirect_error(asio::use_awaitable, error));
      if (error && error != http::error::need_buffer) throw boost::system::system_error(error);
      const std::string_view got(piece.data(), piece.size() - parser.get().body().size);
      if (record.status != 200) {
        reply += got;
        continue;
      }
      const int with_text = events.push(got);
      if (with_text == 0) continue;
      const double now = seconds_since(begin_);
      if (last == 0) {
        record.first_token = now;
      } else {
        record.gaps.push_back(static_cast<float>(now - last));
      }
      for (int i = 1; i < with_text; ++i) record.gaps.push_back(0.f);  // arrived in the same read
      last = now;
    }
    keep_alive = parser.keep_alive();
  } catch (const boost::system::system_error& error) {
    record.error = error.code().message();
  }
  if (!keep_alive) connection_.reset();
  record.end = seconds_since(begin_);
  record.finish_reason = events.finish_reason();
  record.prompt_tokens = events.prompt_tokens();
  record.output_tokens = events.output_tokens();
  if (record.status != 0 && record.status != 200) {
    record.outcome = Outcome::http_error;
    record.error = std::to_string(record.status) + " " + first_line(reply);
  } else if (!events.error().empty()) {
    record.outcome = Outcome::stream_error;
    record.error = events.error();
  } else if (events.done()) {
    record.outcome = Outcome::ok;
  } else if (record.first_token != 0) {
    record.outcome = Outcome::incomplete;
  }
  co_return record;
}

asio::awaitable<std::string> Client::get(const std::string& path) {
  co_await connect();
  http::request<http::empty_body> request{http::verb::get, path, 11};
  request.set(http::field::host, target_.host);
  if (!target_.api_key.empty())
    request.set(http::field::authorization, "Bearer " + target_.api_key);
  auto& [stream, buffer] = *connection_;
  stream.expires_after(kIdleTimeout);
  co_await http::async_write(stream, request, asio::use_awaitable);
  http::response<http::string_body> response;
  co_await http::async_read(stream, buffer, response, asio::use_awaitable);
  if (response.result() != http::status::ok) {
    throw Failure(ErrorCode::unavailable, "GET " + path + ": " +
                                              std::to_string(response.result_int()) + " " +
                                              first_line(response.body()));
  }
  co_return std::move(response.body());
}

}  // namespace quire::load
