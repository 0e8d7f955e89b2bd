#include "net/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/host_names.h"

namespace quire::net {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLookAround{100};

[[noreturn]] void lost(const std::string& what) { throw Failure(ErrorCode::unavailable, what); }

std::string errno_text(int number) { return std::strerror(number); }

std::string tls_error(SSL* ssl) {
  const long verify = SSL_get_verify_result(ssl);
  if (verify != X509_V_OK) return X509_verify_cert_error_string(verify);
  const unsigned long code = ERR_get_error();
  return code == 0 ? "the connection was closed" : ERR_reason_error_string(code);
}

SSL_CTX* tls_context() {
  static SSL_CTX* const context = [] {
    SSL_CTX* made = SSL_CTX_new(TLS_client_method());
    if (made == nullptr) lost("TLS cannot be set up");
    SSL_CTX_set_min_proto_version(made, TLS1_2_VERSION);
    SSL_CTX_set_default_verify_paths(made);  // SSL_CERT_FILE and SSL_CERT_DIR are honoured
    SSL_CTX_set_verify(made, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_options(made, SSL_OP_IGNORE_UNEXPECTED_EOF);
    return made;
  }();
  return context;
}

}  // namespace

struct Socket::State {
  State(const Url& u, const Patience& p) : url(u), patience(p) {}
  ~State() {
    if (ssl != nullptr) SSL_free(ssl);
    if (fd >= 0) ::close(fd);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Until the socket can be read or written; looks around for a stop meanwhile.
  void wait(short events, std::chrono::milliseconds limit, const char* what) {
    const auto deadline = Clock::now() + limit;
    while (true) {
      if (patience.stopped && patience.stopped()) {
        throw Failure(ErrorCode::cancelled, "stopped");
      }
      pollfd one{fd, events, 0};
      const int found = ::poll(&one, 1, static_cast<int>(kLookAround.count()));
      if (found > 0) return;
      if (found < 0 && errno != EINTR) lost(url.text() + ": " + errno_text(errno));
      if (Clock::now() < deadline) continue;
      throw Failure(ErrorCode::timeout, url.text() + ": " + what + " for " +
                                            std::to_string(limit.count() / 1000) + " s");
    }
  }

  bool try_connect(const sockaddr* address, socklen_t size, int family, int& error) {
    if (fd >= 0) ::close(fd);
    fd = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) lost("no socket: " + errno_text(errno));
    error = 0;
    if (::connect(fd, address, size) == 0) return true;
    error = errno;
    if (error != EINPROGRESS) return false;
    wait(POLLOUT, patience.connect, "no connection");
    socklen_t length = sizeof error;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return error == 0;
  }

  void connect_unix() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (url.unix_socket.size() >= sizeof address.sun_path) lost(url.text() + ": the path is too long");
    std::ranges::copy(url.unix_socket, address.sun_path);
    int error = 0;
    if (!try_connect(reinterpret_cast<sockaddr*>(&address), sizeof address, AF_UNIX, error)) {
      lost(url.text() + ": " + errno_text(error));
    }
  }

  HostAddresses look_up() {
    if (auto number = look_up_now(url.host, url.port, AI_NUMERICHOST | AI_NUMERICSERV)) return number;
    const HostLookup lookup(url.host, url.port, AI_ADDRCONFIG);
    const auto deadline = Clock::now() + patience.connect;
    while (!lookup.wait_for(kLookAround)) {
      if (patience.stopped && patience.stopped()) throw Failure(ErrorCode::cancelled, "stopped");
      if (Clock::now() >= deadline)
        throw Failure(ErrorCode::timeout, url.host + ": its name is still being looked up");
    }
    return lookup.answer();
  }

  void connect_tcp() {
    const HostAddresses found = look_up();
    if (!found) lost(found.error().detail);
    int error = 0;
    for (const HostAddress& one : *found) {
      if (!try_connect(one.get(), one.size, one.family(), error)) continue;
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return;
    }
    lost(url.host_header() + ": " + errno_text(error));
  }

  // Repeats an operation of OpenSSL until it is through; its result, or 0 at the end.
  template <class Operation>
  int tls(Operation operation, std::chrono::milliseconds limit, const char* what) {
    while (true) {
      ERR_clear_error();
      const int done = operation();
      if (done > 0) return done;
      switch (SSL_get_error(ssl, done)) {
        case SSL_ERROR_WANT_READ:
          wait(POLLIN, limit, what);
          break;
        case SSL_ERROR_WANT_WRITE:
          wait(POLLOUT, limit, what);
          break;
        case SSL_ERROR_ZERO_RETURN:
          return 0;
        default:
          lost(url.host_header() + ": TLS: " + tls_error(ssl));
      }
    }
  }

  void start_tls() {
    ssl = SSL_new(tls_context());
    if (ssl == nullptr || SSL_set_fd(ssl, fd) != 1) lost("TLS cannot be set up");
    // A name is asked for and checked; an address is checked as one.
    X509_VERIFY_PARAM* const checks = SSL_get0_param(ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(checks, url.host.c_str()) != 1) {
      SSL_set_tlsext_host_name(ssl, url.host.c_str());
      SSL_set1_host(ssl, url.host.c_str());
    }
    if (tls([&] { return SSL_connect(ssl); }, patience.connect, "no TLS handshake") == 0) {
      lost(url.host_header() + ": TLS: the connection was closed");
    }
  }

  const Url url;
  const Patience patience;
  int fd = -1;
  SSL* ssl = nullptr;
};

Socket::Socket(const Url& url, const Patience& patience)
    : state_(std::make_unique<State>(url, patience)) {
  url.unix_socket.empty() ? state_->connect_tcp() : state_->connect_unix();
  if (url.tls) state_->start_tls();
}

Socket::~Socket() = default;

std::size_t Socket::read(std::span<char> buffer) {
  State& state = *state_;
  const auto limit = state.patience.silence;
  const int most = static_cast<int>(std::min<std::size_t>(buffer.size(), 1 << 30));
  if (state.ssl != nullptr) {
    return static_cast<std::size_t>(
        state.tls([&] { return SSL_read(state.ssl, buffer.data(), most); }, limit, "silence"));
  }
  while (true) {
    state.wait(POLLIN, limit, "silence");
    const ssize_t size = ::recv(state.fd, buffer.data(), buffer.size(), 0);
    if (size >= 0) return static_cast<std::size_t>(size);
    if (errno != EAGAIN && errno != EINTR) lost(state.url.host_header() + ": " + errno_text(errno));
  }
}

void Socket::write(std::string_view bytes) {
  State& state = *state_;
  const auto limit = state.patience.silence;
  while (!bytes.empty()) {
    std::size_t sent = 0;
    if (state.ssl != nullptr) {
      const int most = static_cast<int>(std::min<std::size_t>(bytes.size(), 1 << 30));
      sent = static_cast<std::size_t>(state.tls(
          [&] { return SSL_write(state.ssl, bytes.data(), most); }, limit, "nothing could be sent"));
      if (sent == 0) lost(state.url.host_header() + ": the connection was closed");
    } else {
      state.wait(POLLOUT, limit, "nothing could be sent");
      const ssize_t size = ::send(state.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (size < 0 && errno != EAGAIN && errno != EINTR) {
        lost(state.url.host_header() + ": " + errno_text(errno));
      }
      sent = static_cast<std::size_t>(std::max<ssize_t>(size, 0));
    }
    bytes.remove_prefix(sent);
  }
}

}  // namespace quire::net
