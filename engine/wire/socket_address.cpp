#include "engine/wire/socket_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/host_names.h"

namespace quire {
namespace {

constexpr int kBacklog = 64;

Error system_error(const std::string& what) {
  return {ErrorCode::unavailable, what + ": " + std::strerror(errno), {}};
}

sockaddr_un unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

// Of the program: what one attempt has found out, the next one goes on with.
HostNames& host_names() {
  static HostNames names(
      [](const std::string& host, const std::string& port) { return look_up_now(host, port, 0); });
  return names;
}

Descriptor new_socket(int family) {
  return Descriptor(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// A step's tokens must not wait for the acknowledgement of those before.
void send_at_once(const Descriptor& socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Only a socket that refuses connections may be removed.
Result<void> make_room(const SocketAddress& address) {
  struct stat info {};
  if (::lstat(address.path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode))
    return Error{ErrorCode::invalid_argument, address.text() + " exists and is not a socket", {}};
  const Descriptor probe = new_socket(AF_UNIX);
  const sockaddr_un name = unix_address(address.path);
  const bool answered =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
  if (answered || errno != ECONNREFUSED)
    return Error{ErrorCode::unavailable, address.text() + " is in use", {}};
  ::unlink(address.path.c_str());
  return {};
}

Result<Descriptor> listen_at_path(const SocketAddress& address) {
  if (auto free = make_room(address); !free) return free.error();
  Descriptor listener = new_socket(AF_UNIX);
  const sockaddr_un name = unix_address(address.path);
  const mode_t before = ::umask(0177);  // the owner alone may connect
  const int bound = ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name);
  ::umask(before);
  if (bound != 0 || ::listen(listener.get(), kBacklog) != 0) return system_error(address.text());
  return listener;
}

}  // namespace

bool SocketAddress::is_loopback() const {
  return is_unix() || host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string SocketAddress::text() const {
  if (is_unix()) return "unix:" + path;
  const bool is_v6 = host.find(':') != std::string::npos;
  return "tcp://" + (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<SocketAddress> parse_socket_address(std::string_view text) {
  const auto refuse = [&](const std::string& why) {
    return Error{ErrorCode::invalid_argument,
                 "\"" + std::string(text) + "\" " + why +
                     "; such as unix:/run/engine.sock or tcp://10.0.0.7:9000",
                 {}};
  };
  SocketAddress address;
  if (text.starts_with("unix:")) {
    address.path = text.substr(5);
    if (address.path.empty()) return refuse("has no path");
    if (address.path.size() >= sizeof(sockaddr_un::sun_path) ||
        address.path.find('\0') != std::string::npos)
      return refuse("has a path longer than a Unix socket's may be (107 bytes)");
    return address;
  }
  std::string_view rest = text;
  if (rest.starts_with("tcp://")) rest.remove_prefix(6);
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return refuse("has no port");
  std::string_view host = rest.substr(0, colon);
  const std::string_view port = rest.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":/") != std::string_view::npos) {
    return refuse("is not the address of an engine");
  }
  if (host.empty()) return refuse("has no host");
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size()) return refuse("has no port");
  address.host = host;
  return address;
}

void Descriptor::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Result<Descriptor> begin_connect(const SocketAddress& address,
                                 std::chrono::milliseconds patience) {
  if (address.is_unix()) {
    Descriptor socket = new_socket(AF_UNIX);
    const sockaddr_un name = unix_address(address.path);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0)
      return system_error(address.text());
    return socket;
  }
  bool is_last = false;
  while (!is_last) {
    const auto next = host_names().next(address.host, std::to_string(address.port), patience);
    if (!next) return next.error();
    is_last = next->is_last;
    Descriptor socket = new_socket(next->address.family());
    if (!socket) continue;
    send_at_once(socket);
    if (::connect(socket.get(), next->address.get(), next->address.size) == 0 ||
        errno == EINPROGRESS)
      return socket;
  }
  return system_error(address.text());
}

std::string connect_error(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? "" : std::strerror(error);
}

Result<Descriptor> listen_at(const SocketAddress& address) {
  if (address.is_unix()) return listen_at_path(address);
  const auto found = look_up_now(address.host, std::to_string(address.port), AI_PASSIVE);
  if (!found) return found.error();
  const HostAddress& name = found->front();
  Descriptor listener = new_socket(name.family());
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener.get(), name.get(), name.size) != 0 ||
      ::listen(listener.get(), kBacklog) != 0)
    return system_error(address.text());
  return listener;
}

Descriptor accept_from(const Descriptor& listener) {
  Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) send_at_once(socket);
  return socket;
}

std::uint16_t port_of(const Descriptor& listener) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&name), &size) != 0) return 0;
  if (name.ss_family == AF_UNIX) return 0;
  if (name.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(name).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

}  // namespace quire
