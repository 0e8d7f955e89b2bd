#include "server/http/cors.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <cctype>

namespace quire {

namespace {

bool has_all(const CorsConfig& config) {
  return std::ranges::find(config.origins, "*") != config.origins.end();
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

// What a page may always send (Fetch standard), and JSON needs; as Starlette has it.
std::vector<std::string> with_safe(std::vector<std::string> headers) {
  for (const char* safe : {"Accept", "Accept-Language", "Content-Language", "Content-Type"}) {
    const bool has = std::ranges::any_of(headers, [safe](const std::string& own) {
      return own == "*" || boost::beast::iequals(own, safe);
    });
    if (!has) headers.emplace_back(safe);
  }
  return headers;
}

// Scheme, host and port as a browser writes them.
bool is_origin(std::string_view text) {
  if (text == "*" || text == "null") return true;
  const std::size_t scheme = text.find("://");
  return scheme != text.npos && scheme > 0 && text.size() > scheme + 3 &&
         text.find_first_of("/?#*, \r\n", scheme + 3) == text.npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '*';
  });
}

Error wrong(std::string field, const std::string& value, const char* what) {
  return {ErrorCode::invalid_argument, field + ": \"" + value + "\" " + what, field};
}

}  // namespace

Result<void> validate(const CorsConfig& config) {
  for (const std::string& origin : config.origins) {
    if (!is_origin(origin)) {
      return wrong("CorsConfig::origins", origin,
                   "is not an origin; https://host, http://host:port and * are");
    }
  }
  for (const std::string& method : config.methods) {
    if (!is_token(method)) return wrong("CorsConfig::methods", method, "is not a method");
  }
  for (const std::string& header : config.headers) {
    if (!is_token(header))
      return wrong("CorsConfig::headers", header, "is not the name of a header");
  }
  if (config.credentials && (config.origins.empty() || has_all(config))) {
    return Error{
        ErrorCode::invalid_argument,
        "CorsConfig::credentials needs CorsConfig::origins with names: any page could act for "
        "whoever looks at it",
        "CorsConfig::credentials"};
  }
  return {};
}

bool allows_origin(const CorsConfig& config, std::string_view origin) {
  return has_all(config) || std::ranges::find(config.origins, origin) != config.origins.end();
}

std::string cors_headers(const CorsConfig& config, std::string_view origin, bool is_preflight) {
  if (origin.empty() || config.origins.empty()) return {};
  const bool all = has_all(config);
  std::string lines = all ? "" : "Vary: Origin\r\n";
  if (!allows_origin(config, origin)) return lines;
  lines += "Access-Control-Allow-Origin: ";
  lines.append(all ? "*" : origin).append("\r\n");
  if (config.credentials) lines += "Access-Control-Allow-Credentials: true\r\n";
  if (!is_preflight) return lines + "Access-Control-Expose-Headers: X-Request-Id, Retry-After\r\n";
  return lines + "Access-Control-Allow-Methods: " + joined(config.methods) +
         "\r\nAccess-Control-Allow-Headers: " + joined(with_safe(config.headers)) +
         "\r\nAccess-Control-Max-Age: 600\r\n";
}

}  // namespace quire
