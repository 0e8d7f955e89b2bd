#include "proxy/errors.h"

#include <algorithm>
#include <boost/json.hpp>

namespace quire::proxy {
namespace {

namespace json = boost::json;

constexpr std::size_t kMostHeld = 16 << 20;  // bytes of one event

std::string_view type_of(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 403:
      return "Forbidden";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Bad Gateway";
  }
}

json::string_view text(std::string_view of) { return {of.data(), of.size()}; }

bool is_of(std::string_view target, std::string_view path) {
  return target.substr(0, target.find('?')).starts_with(path);
}

}  // namespace

std::string error_body(std::string_view target, int status, std::string_view message) {
  if (is_of(target, "/v1/messages")) {
    const char* type = status == 403   ? "permission_error"
                       : status == 413 ? "request_too_large"
                       : status < 500  ? "invalid_request_error"
                                       : "api_error";
    return json::serialize(
        json::object{{"type", "error"}, {"error", {{"type", type}, {"message", text(message)}}}});
  }
  return json::serialize(json::object{{"error",
                                       {{"message", text(message)},
                                        {"type", text(type_of(status))},
                                        {"param", nullptr},
                                        {"code", status}}}});
}

std::string error_event(std::string_view target, std::string_view message) {
  if (is_of(target, "/v1/messages"))
    return "event: error\ndata: " + error_body(target, 502, message) + "\n\n";
  if (is_of(target, "/v1/responses")) {
    const json::object event{{"type", "error"},
                             {"code", "server_error"},
                             {"message", text(message)},
                             {"param", nullptr}};
    return "event: error\ndata: " + json::serialize(event) + "\n\n";
  }
  return "data: " + error_body(target, 502, message) + "\n\ndata: [DONE]\n\n";
}

std::string_view EventPieces::push(std::string_view piece) {
  held_ += piece;
  std::size_t end = 0;
  for (const std::string_view blank : {"\n\n", "\n\r\n"}) {
    const std::size_t at = held_.rfind(blank);
    if (at != std::string::npos) end = std::max(end, at + blank.size());
  }
  if (held_.size() - end > kMostHeld) end = held_.size();
  whole_.assign(held_, 0, end);
  held_.erase(0, end);
  return whole_;
}

}  // namespace quire::proxy
