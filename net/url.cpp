#include "net/url.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace quire::net {

namespace {

constexpr std::string_view kUnix = "unix:";

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw Failure(ErrorCode::invalid_argument, "\"" + std::string(text.substr(0, 200)) + "\" " + why);
}

bool is_port(std::string_view text) {
  int port = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), port);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() && port > 0 && port < 65536;
}

// host, host:port, [v6] or [v6]:port
void read_authority(std::string_view whole, std::string_view authority, Url& url) {
  if (authority.find('@') != authority.npos) refuse(whole, "has a user name, which is not supported");
  const bool v6 = authority.starts_with('[');
  const std::size_t end = v6 ? authority.find(']') : authority.find(':');
  if (v6 && end == authority.npos) refuse(whole, "lacks a ]");
  url.host = authority.substr(v6 ? 1 : 0, v6 ? end - 1 : end);
  std::string_view rest = end == authority.npos ? "" : authority.substr(end + (v6 ? 1 : 0));
  if (url.host.empty()) refuse(whole, "names no host");
  url.port = url.tls ? "443" : "80";
  if (rest.empty()) return;
  if (!rest.starts_with(':') || !is_port(rest.substr(1))) refuse(whole, "has no port from 1 to 65535");
  url.port = rest.substr(1);
}

}  // namespace

Url Url::parse(std::string_view text) {
  const auto is_odd = [](unsigned char c) { return c <= 0x20 || c == 0x7F; };
  if (std::ranges::any_of(text, is_odd)) refuse(text, "has a space or a control character in it");
  Url url;
  if (text.starts_with(kUnix)) {
    url.unix_socket = text.substr(kUnix.size());
    url.host = "localhost";
    if (url.unix_socket.empty()) refuse(text, "names no socket");
    return url;
  }
  const std::size_t scheme = text.find("://");
  const std::string_view name = text.substr(0, std::min(scheme, text.size()));
  if (scheme == text.npos || (name != "http" && name != "https")) {
    refuse(text, "is not an address; http://host:port, https://host or unix:/path is");
  }
  url.tls = name == "https";
  std::string_view rest = text.substr(scheme + 3);
  const std::size_t path = rest.find_first_of("/?#");
  read_authority(text, rest.substr(0, path), url);
  if (path != rest.npos) url.target = rest.substr(path, rest.find('#') - path);
  if (url.target.starts_with('?')) url.target.insert(0, "/");
  return url;
}

Url Url::with_path(std::string_view path) const {
  Url url = *this;
  while (url.target.ends_with('/')) url.target.pop_back();
  url.target += path;
  return url;
}

Url Url::resolve(std::string_view location) const {
  if (location.find("://") != location.npos && !location.starts_with('/')) return parse(location);
  if (location.starts_with("//")) return parse((tls ? "https:" : "http:") + std::string(location));
  const auto is_odd = [](unsigned char c) { return c <= 0x20 || c == 0x7F; };
  if (!location.starts_with('/') || std::ranges::any_of(location, is_odd)) {
    refuse(location, "is not a place to be sent to");
  }
  Url url = *this;
  url.target = location.substr(0, location.find('#'));
  return url;
}

bool Url::same_origin(const Url& other) const {
  return tls == other.tls && host == other.host && port == other.port &&
         unix_socket == other.unix_socket;
}

std::string Url::host_header() const {
  const std::string name = host.find(':') == host.npos ? host : "[" + host + "]";
  const bool usual = !unix_socket.empty() || port == (tls ? "443" : "80");
  return usual ? name : name + ":" + port;
}

std::string Url::text() const {
  if (!unix_socket.empty()) return std::string(kUnix) + unix_socket + target;
  return (tls ? "https://" : "http://") + host_header() + target;
}

std::string percent_encode_path(std::string_view path) {
  constexpr std::string_view kPlain = "-._~!$&'()*+,;=:@/";
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const unsigned char c : path) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_letter || kPlain.find(static_cast<char>(c)) != kPlain.npos) {
      out += static_cast<char>(c);
    } else {
      out.append({'%', kHex[c >> 4], kHex[c & 15]});
    }
  }
  return out;
}

}  // namespace quire::net
