#include "server/http/error_reply.h"

#include <array>
#include <boost/beast/http/status.hpp>

#include "openapi/dto_json.h"

namespace quire {

namespace {

struct Row {
  ErrorCode code;
  int status;
  std::string_view type;
  int retry_after = 0;
};

constexpr std::array kTable = {
    Row{ErrorCode::invalid_argument, 400, "BadRequestError"},
    Row{ErrorCode::not_found, 404, "NotFoundError"},
    Row{ErrorCode::method_not_allowed, 405, "Method Not Allowed"},
    Row{ErrorCode::too_large, 413, "Content Too Large"},
    Row{ErrorCode::timeout, 408, "Request Timeout"},
    Row{ErrorCode::unauthorized, 401, "Unauthorized"},
    Row{ErrorCode::unsupported, 400, "BadRequestError"},
    Row{ErrorCode::overloaded, 503, "Service Unavailable", 1},
    Row{ErrorCode::unavailable, 503, "Service Unavailable", 5},
    Row{ErrorCode::cancelled, 400, "BadRequestError"},
    Row{ErrorCode::internal, 500, "InternalServerError"},
};

const Row& row_of(ErrorCode code) {
  for (const Row& row : kTable) {
    if (row.code == code) return row;
  }
  return kTable.back();
}

// A JSON pointer to a member is, without its slash, the member's name; to what lies deeper, itself.
std::string_view param_of(const Error& error) {
  const std::string_view field = error.field;
  const bool is_member = field.starts_with('/') && field.find('/', 1) == field.npos;
  return is_member ? field.substr(1) : field;
}

std::string body_of(const Error& error, const Row& row) {
  return openapi::error_json(error.detail, row.type, param_of(error), row.status);
}

}  // namespace

Reply error_reply(const Error& error) {
  const Row& row = row_of(error.code);
  // vLLM's one exception to the object.
  if (error.code == ErrorCode::unauthorized) {
    return {.status = 401, .body = R"({"error":"Unauthorized"})", .error = "The key is not one of this server's"};
  }
  Reply reply{.status = row.status,
              .body = body_of(error, row),
              .retry_after = row.retry_after,
              .error = error.detail};
  // OpenAI's clients would ask again, and wait as long again.
  if (error.code == ErrorCode::timeout) reply.more_headers = "X-Should-Retry: false\r\n";
  return reply;
}

Reply malformed_reply(const Error& error) {
  if (error.code != ErrorCode::invalid_argument) return error_reply(error);
  return {.status = 400,
          .body = openapi::error_json(error.detail, "Bad Request", param_of(error), 400),
          .error = error.detail};
}

std::string error_body(const Error& error) { return body_of(error, row_of(error.code)); }

std::string_view reason_phrase(int status) {
  namespace http = boost::beast::http;
  if (status == 413) return "Content Too Large";  // Beast has the older name
  const auto phrase = http::obsolete_reason(http::int_to_status(status));
  return {phrase.data(), phrase.size()};
}

Reply plain_error_reply(int status, const std::string& message) {
  return {.status = status,
          .body = openapi::error_json(message, reason_phrase(status), {}, status),
          .retry_after = status == 503 || status == 429 ? 1 : 0,
          .error = message};
}

}  // namespace quire
