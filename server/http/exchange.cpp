#include "server/http/exchange.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <charconv>
#include <ctime>
#include <random>
#include <utility>

#include "openapi/dto.h"
#include "server/http/auth.h"
#include "server/http/connection.h"
#include "server/http/error_reply.h"

namespace quire {

namespace {

// What a client may send ahead while its request runs.
constexpr std::size_t kMaxAhead = 64 * 1024;
constexpr std::chrono::milliseconds kLookForPeer{250};
constexpr std::size_t kMaxRequestIdBytes = 128;

// It is echoed in a header and in ids: only what is safe in both.
bool is_usable_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestIdBytes &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) { return c > 0x20 && c < 0x7F; });
}

std::string_view http_date() {
  thread_local std::time_t made = 0;
  thread_local std::string text;
  if (const std::time_t now = std::time(nullptr); now != made) {
    text = fmt::format("{:%a, %d %b %Y %H:%M:%S GMT}", fmt::gmtime(now));
    made = now;
  }
  return text;
}

}  // namespace

std::string made_up_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}{:016x}", random(), random());
}

Reply json_reply(std::string body) { return {.body = std::move(body)}; }

Exchange::Exchange(Connection& connection, RequestReader& reader, HttpRequest request)
    : connection_(connection), reader_(reader), request_(std::move(request)) {
  id_ = is_usable_id(request_.request_id) ? request_.request_id : made_up_id();
}

bool Exchange::keep_alive() const {
  return request_.keep_alive && status_ != 0 && written_ && (!sse_ || sse_->complete());
}

std::string Exchange::head(const Reply& reply, std::string_view framing) const {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\nServer: quire\r\nX-Request-Id: {}\r\n{}",
                  reply.status, reason_phrase(reply.status), http_date(), id_, framing);
  const auto add = [&head](auto&&... parts) { (head.append(parts), ...); };
  if (error_form_) add("Request-Id: ", id_, "\r\n");
  if (!reply.content_type.empty()) add("Content-Type: ", reply.content_type, "\r\n");
  if (reply.retry_after > 0) add("Retry-After: ", std::to_string(reply.retry_after), "\r\n");
  if (!reply.allow.empty()) add("Allow: ", reply.allow, "\r\n");
  if (reply.status == 401) add("WWW-Authenticate: Bearer\r\n");
  add(reply.more_headers, cors_);
  if (!request_.keep_alive) add("Connection: close\r\n");
  if (request_.keep_alive && request_.version == 10) add("Connection: keep-alive\r\n");
  add("\r\n");
  return head;
}

std::uint64_t Exchange::client() const {
  const auto key = reinterpret_cast<std::uintptr_t>(key_);
  return key_ != nullptr && !key_->key().name.empty() ? key : connection_.peer() ^ key;
}

Result<void> Exchange::read_time_limit() {
  constexpr double kMost = openapi::kMaxTimeoutSeconds;
  const std::string& text = request_.timeout;
  if (text.empty()) return {};
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds > 0) || seconds > kMost) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("X-Request-Timeout must be a number of seconds above 0, at most {}", kMost),
                 "X-Request-Timeout"};
  }
  deadline_ = arrival_ + std::chrono::microseconds(static_cast<std::int64_t>(seconds * 1e6));
  return {};
}

Result<void> Exchange::read_engine(int num_engines) {
  const std::string& text = request_.engine;
  if (text.empty()) return {};
  std::uint32_t rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  const bool is_rank = error == std::errc() && end == text.data() + text.size();
  if (!is_rank || std::cmp_greater_equal(rank, num_engines)) {
    return Error{ErrorCode::invalid_argument,
                 num_engines == 1
                     ? std::string("X-data-parallel-rank must be 0: this server has one engine")
                     : fmt::format("X-data-parallel-rank must be an engine's number, from 0 to {}",
                                   num_engines - 1),
                 "X-data-parallel-rank"};
  }
  engine_ = EngineId{rank};
  return {};
}

std::chrono::steady_clock::time_point Exchange::deadline(std::optional<double> member) const {
  if (!member) return deadline_;
  return std::min(deadline_, arrival_ + std::chrono::microseconds(static_cast<std::int64_t>(*member * 1e6)));
}

awaitable<bool> Exchange::receive_body(ByteBudget& budget) {
  body_share_.emplace(budget);
  HttpBody body = co_await reader_.read_body(*body_share_);
  if (body.bytes) request_.body = std::move(*body.bytes);
  request_bytes_ = request_.body.size();
  if (body.refusal) {
    co_await reply(plain_error_reply(body.refusal->status, body.refusal->message));
  }
  co_return body.bytes.has_value();
}

void Exchange::drop_body() {
  std::string().swap(request_.body);
  if (body_share_) body_share_->release();
}

void Exchange::end() {
  if (const auto call = std::exchange(before_end_, nullptr)) call();
}

Error Exchange::spelled(Error error) const {
  if (!spelling_) return error;
  return {error.code, spelling_(std::move(error.detail)), spelling_(std::move(error.field))};
}

Exchange::~Exchange() {
  if (replies_ != nullptr && status_ != 0) --*replies_;
}

void Exchange::begin_reply(int status) {
  if (replies_ != nullptr && status_ == 0) ++*replies_;
  status_ = status;
}

awaitable<void> Exchange::reply(Reply reply) {
  if (spelling_ && !reply.error.empty()) {
    reply.error = spelling_(std::move(reply.error));
    reply.body = spelling_(std::move(reply.body));
  }
  if (error_form_ && !reply.error.empty()) {
    reply.body = error_form_(reply.status, reply.error, id_);
  }
  begin_reply(reply.status);
  reply_bytes_ = reply.body.size();
  if (reader_.is_unfinished()) close_after();
  end();
  constexpr int kNoContent = 204;  // and no length of it: RFC 9110, 8.6
  const std::string length = fmt::format("Content-Length: {}\r\n", reply.body.size());
  std::string bytes = head(reply, reply.status == kNoContent ? "" : length);
  if (request_.method != Method::head) bytes += reply.body;
  written_ = false;
  written_ = co_await connection_.write(bytes);
}

SseWriter& Exchange::begin_sse() {
  begin_reply(200);
  const bool chunked = request_.version >= 11;
  if (!chunked) request_.keep_alive = false;
  const Reply reply{.content_type = "text/event-stream; charset=utf-8"};
  const std::string_view framing = chunked
                                       ? "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n"
                                       : "Cache-Control: no-cache\r\n";
  return sse_.emplace(connection_, head(reply, framing), chunked, [this] { end(); });
}

Exchange::LeavingWatch::LeavingWatch(Exchange& exchange, std::function<void()> on_leaving)
    : exchange_(exchange) {
  exchange_.connection_.on_leaving([this, call = std::move(on_leaving)] {
    left_ = true;
    call();
  });
}

Exchange::LeavingWatch::~LeavingWatch() { exchange_.connection_.on_leaving({}); }

awaitable<void> Exchange::peer_closed() {
  bool is_there = true;
  while (is_there && connection_.input().size() < kMaxAhead) {
    is_there = co_await connection_.fill();
  }
  // No more is read, so the end is not read either: it is asked for.
  while (is_there) {
    co_await sleep_for(kLookForPeer);
    is_there = !connection_.peer_has_left();
  }
}

}  // namespace quire
