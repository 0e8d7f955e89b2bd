#include "proxy/heads.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace quire::proxy {
namespace {

// What a server reads of a request's head; the rest is the connection's, or nothing to it.
constexpr std::array<const char*, 14> kHandedOn{"Authorization",
                                                "X-Api-Key",
                                                "Content-Type",
                                                "Content-Encoding",
                                                "Accept",
                                                "X-Request-Id",
                                                "Traceparent",
                                                "Tracestate",
                                                "X-Request-Timeout",
                                                "X-Data-Parallel-Rank",
                                                "Origin",
                                                "Access-Control-Request-Method",
                                                "Access-Control-Request-Headers",
                                                "Access-Control-Request-Private-Network"};
// And of an answer's, what a client needs.
constexpr std::array<const char*, 15> kHandedBack{"Content-Type",
                                                  "X-Request-Id",
                                                  "Request-Id",
                                                  "Retry-After",
                                                  "Cache-Control",
                                                  "WWW-Authenticate",
                                                  "Allow",
                                                  "Location",
                                                  "Vary",
                                                  "Access-Control-Allow-Origin",
                                                  "Access-Control-Allow-Methods",
                                                  "Access-Control-Allow-Headers",
                                                  "Access-Control-Expose-Headers",
                                                  "Access-Control-Max-Age",
                                                  "Access-Control-Allow-Credentials"};

// As servers read it: without the query, and with %XX for what it stands for.
std::string path_of(std::string_view target) {
  target = target.substr(0, target.find('?'));
  std::string path;
  for (std::size_t i = 0; i < target.size(); ++i) {
    const auto digit = [&](std::size_t at) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const char c = at < target.size() ? target[at] : ' ';
      return kDigits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
    };
    const std::size_t high = digit(i + 1), low = digit(i + 2);
    const bool is_escape =
        target[i] == '%' && high != std::string_view::npos && low != std::string_view::npos;
    path += is_escape ? static_cast<char>(high * 16 + low) : target[i];
    if (is_escape) i += 2;
  }
  return path;
}

}  // namespace

Headers handed_back(const net::Response& answer) {
  Headers headers;
  for (const char* name : kHandedBack)
    if (const auto value = answer.header(name); !value.empty())
      headers.emplace_back(name, std::string(value));
  return headers;
}

bool is_target(const IncomingRequest& request) {
  return request.target.starts_with('/') || (request.method == "OPTIONS" && request.target == "*");
}

net::Request request_to(const net::Url& server, const IncomingRequest& request,
                        const std::string& body) {
  net::Request out;
  out.method = request.method;
  out.url = server.with_path(request.target);
  out.body = body;
  for (const char* name : kHandedOn)
    if (const auto value = request.header(name); !value.empty())
      out.headers.emplace_back(name, std::string(value));
  return out;
}

bool is_of_one_server(std::string_view target) {
  constexpr std::array<std::string_view, 4> kOwn{"/metrics", "/load", "/debug",
                                                 "/reset_prefix_cache"};
  const std::string path = path_of(target);
  return std::ranges::any_of(kOwn, [&](std::string_view own) {
    return path.starts_with(own) && (path.size() == own.size() || path[own.size()] == '/');
  });
}

}  // namespace quire::proxy
