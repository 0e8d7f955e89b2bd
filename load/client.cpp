#include "load/client.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <utility>

#include "base/error.h"
#include "load/connection.h"
#include "load/event_stream.h"

namespace quire::load {

namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string first_line(std::string text) {
  if (const auto end = text.find('\n'); end != std::string::npos) text.resize(end);
  if (text.size() > 200) text.resize(200);
  return text;
}

template <class Body>
http::request<Body> request_to(const Target& target, http::verb verb, const std::string& path) {
  http::request<Body> request{verb, target.url.with_path(path).target, 11};
  request.set(http::field::host, target.url.host_header());
  if (!target.api_key.empty()) request.set(http::field::authorization, "Bearer " + target.api_key);
  return request;
}

// An exchange's reply, as it comes.
struct Reply {
  EventStream events;
  std::string text;  // of anything but 200
  bool keep_alive = false;
};

void note_text(Record& record, int chunks, double now, double& last) {
  if (last == 0) {
    record.first_token = now;
  } else {
    record.gaps.push_back(static_cast<float>(now - last));
  }
  for (int i = 1; i < chunks; ++i) record.gaps.push_back(0.f);  // arrived in the same read
  last = now;
}

template <class Stream>
asio::awaitable<void> read_reply(Stream& stream, boost::beast::flat_buffer& buffer,
                                 std::chrono::milliseconds most_silence, Clock::time_point begin,
                                 Record& record, Reply& reply) {
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
    limit_silence(stream, most_silence);
    co_await http::async_read_some(stream, buffer, parser,
                                   asio::redirect_error(asio::use_awaitable, error));
    if (error && error != http::error::need_buffer) throw boost::system::system_error(error);
    const std::string_view got(piece.data(), piece.size() - parser.get().body().size);
    if (record.status != 200) {
      reply.text += got;
    } else if (const int with_text = reply.events.push(got); with_text > 0) {
      note_text(record, with_text, seconds_since(begin), last);
    }
  }
  reply.keep_alive = parser.keep_alive();
}

template <class Stream>
asio::awaitable<void> exchange(Stream& stream, boost::beast::flat_buffer& buffer,
                               http::request<http::string_body>& request,
                               std::chrono::milliseconds most_silence, Clock::time_point begin,
                               Record& record, Reply& reply) {
  limit_silence(stream, most_silence);
  record.sent = seconds_since(begin);
  boost::system::error_code error;
  co_await http::async_write(stream, request, asio::redirect_error(asio::use_awaitable, error));
  if (!error) co_return co_await read_reply(stream, buffer, most_silence, begin, record, reply);
  // A server that wants no more of the body may have said why before it closed.
  try {
    co_await read_reply(stream, buffer, most_silence, begin, record, reply);
  } catch (const boost::system::system_error&) {
    if (record.status == 0) throw boost::system::system_error(error);
  }
  reply.keep_alive = false;
}

template <class Stream>
asio::awaitable<http::response<http::string_body>> fetch(Stream& stream,
                                                         boost::beast::flat_buffer& buffer,
                                                         http::request<http::empty_body>& request,
                                                         std::chrono::milliseconds most_silence) {
  limit_silence(stream, most_silence);
  co_await http::async_write(stream, request, asio::use_awaitable);
  http::response<http::string_body> response;
  co_await http::async_read(stream, buffer, response, asio::use_awaitable);
  co_return response;
}

bool is_closed(const boost::system::error_code& error) {
  return error == http::error::end_of_stream || error == asio::error::eof ||
         error == asio::error::connection_reset || error == asio::error::broken_pipe ||
         error == asio::ssl::error::stream_truncated;
}

void conclude(Record& record, const Reply& reply) {
  record.finish_reason = reply.events.finish_reason();
  record.prompt_tokens = reply.events.prompt_tokens();
  record.output_tokens = reply.events.output_tokens();
  if (record.status != 0 && record.status != 200) {
    record.outcome = Outcome::http_error;
    record.error = std::to_string(record.status) + " " + first_line(reply.text);
  } else if (!reply.events.error().empty()) {
    record.outcome = Outcome::stream_error;
    record.error = reply.events.error();
  } else if (reply.events.done() && record.first_token == 0 && record.finish_reason.empty()) {
    record.outcome = Outcome::incomplete;
    record.error = "the stream had no answer in it";
  } else if (reply.events.done()) {
    record.outcome = Outcome::ok;
  } else if (record.first_token != 0) {
    record.outcome = Outcome::incomplete;
  }
}

}  // namespace

struct Client::Connection {
  AnyStream stream;
  boost::beast::flat_buffer buffer;
};

Target Target::parse(const std::string& url) {
  constexpr std::string_view kVersion = "/v1";
  Target target{.url = net::Url::parse(url), .api_key = {}};
  std::string& path = target.url.target;
  while (path.ends_with('/')) path.pop_back();
  if (path.ends_with(kVersion)) path.resize(path.size() - kVersion.size());
  return target;
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
  AnyStream stream =
      co_await connect_to(executor_, target_.url, target_.check_certificate, target_.most_silence);
  connection_.reset(new Connection{.stream = std::move(stream), .buffer = {}});
}

// what() of an exception would carry a place in Boost's sources.
std::string Client::text_of(const boost::system::error_code& error) const {
  if (error != boost::beast::error::timeout) return error.message();
  return fmt::format("ended by quire-load: nothing came for {:g} s (--silence-timeout)",
                     static_cast<double>(target_.most_silence.count()) / 1e3);
}

asio::awaitable<Record> Client::post(const std::string& path, const std::string& body, double due,
                                     std::string& answer) {
  Record record;
  record.due = due;
  record.sent = seconds_since(begin_);
  auto request = request_to<http::string_body>(target_, http::verb::post, path);
  request.set(http::field::content_type, "application/json");
  request.body() = body;
  request.prepare_payload();
  Reply reply;
  // A server may close a connection that waits, just as it is used again.
  bool is_stale = connection_ != nullptr;
  do {
    boost::system::error_code error;
    try {
      co_await connect();
      co_await std::visit(
          [&](auto& stream) {
            return exchange(*stream, connection_->buffer, request, target_.most_silence, begin_,
                            record, reply);
          },
          connection_->stream);
    } catch (const boost::system::system_error& thrown) {
      error = thrown.code();
    }
    is_stale = is_stale && record.status == 0 && is_closed(error);
    if (error && !is_stale) record.error = text_of(error);
    if (!reply.keep_alive) connection_.reset();
  } while (std::exchange(is_stale, false));
  record.end = seconds_since(begin_);
  answer = reply.events.take_text();
  conclude(record, reply);
  co_return record;
}

asio::awaitable<std::string> Client::get(const std::string& path) {
  auto request = request_to<http::empty_body>(target_, http::verb::get, path);
  http::response<http::string_body> response;
  try {
    co_await connect();
    response = co_await std::visit(
        [&](auto& stream) {
          return fetch(*stream, connection_->buffer, request, target_.most_silence);
        },
        connection_->stream);
  } catch (const boost::system::system_error& error) {
    throw Failure(ErrorCode::unavailable, text_of(error.code()));
  }
  if (response.result() != http::status::ok) {
    throw HttpRefusal(static_cast<int>(response.result_int()),
                      "GET " + path + ": " + std::to_string(response.result_int()) + " " +
                          first_line(response.body()));
  }
  co_return std::move(response.body());
}

}  // namespace quire::load
