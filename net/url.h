#pragma once
// Where an HTTP request goes: http://host:port/path, https://…, or unix:/path/of/a/socket.

#include <string>
#include <string_view>

namespace quire::net {

struct Url {
  bool tls = false;
  std::string host;         // without brackets; "localhost" for a Unix socket
  std::string port;         // a number
  std::string unix_socket;  // instead of host and port
  std::string target;       // path and query; begins with a slash, or is empty

  // Throws Failure for anything else, among it user names, spaces and control characters.
  static Url parse(std::string_view text);

  // The same server, with the path appended to this one's.
  Url with_path(std::string_view path) const;
  // What a Location header means here. Throws Failure.
  Url resolve(std::string_view location) const;
  // One server, to which a key may go.
  bool same_origin(const Url& other) const;
  std::string host_header() const;
  std::string text() const;  // for messages
};

// %XX for all that may not stand in a path; slashes stay.
std::string percent_encode_path(std::string_view path);

}  // namespace quire::net
