#include "engine/wire/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <string_view>

#include "base/error.h"

namespace quire {
namespace {

std::string reason() {
  const unsigned long code = ERR_get_error();
  const char* const text = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return text != nullptr ? text : "unknown";
}

// Where the file cannot be opened the system says why, and OpenSSL does not.
std::string reason_of(const std::string& path) {
  if (std::ifstream(path).is_open()) return reason();
  const int why = errno;
  ERR_clear_error();
  return std::strerror(why);
}

Error refused_file(const char* field, const std::string& path, const std::string& why) {
  return {ErrorCode::invalid_argument, path + ": " + why, field};
}

bool is_ip(const std::string& host) {
  unsigned char address[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, host.c_str(), address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), address) == 1;
}

}  // namespace

void TlsContext::Free::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }
void TlsStream::Free::operator()(ssl_st* ssl) const { SSL_free(ssl); }

Result<std::shared_ptr<const TlsContext>> TlsContext::make(const Files& files) {
  const std::shared_ptr<TlsContext> made(new TlsContext());
  made->context_.reset(SSL_CTX_new(TLS_method()));
  SSL_CTX* const context = made->context_.get();
  if (context == nullptr) return Error{ErrorCode::internal, "TLS: " + reason(), {}};
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_num_tickets(context, 0);  // a connection lasts; a ticket would only be read late
  if (!files.certificate.empty()) {
    if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1)
      return refused_file("TlsContext::Files::certificate", files.certificate,
                          reason_of(files.certificate));
    if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1)
      return refused_file("TlsContext::Files::key", files.key, reason_of(files.key));
    if (SSL_CTX_check_private_key(context) != 1)
      return refused_file("TlsContext::Files::key", files.key, "not the certificate's key");
    made->can_accept_ = true;
  }
  if (!files.authorities.empty()) {
    if (SSL_CTX_load_verify_locations(context, files.authorities.c_str(), nullptr) != 1)
      return refused_file("TlsContext::Files::authorities", files.authorities,
                          reason_of(files.authorities));
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    made->can_dial_ = true;
  }
  return std::shared_ptr<const TlsContext>(made);
}

TlsStream::TlsStream(const TlsContext& context, int socket, const std::string& host)
    : ssl_(SSL_new(context.handle())) {
  if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), socket) != 1)
    throw Failure(ErrorCode::internal, "TLS: " + reason());
  if (host.empty()) {
    SSL_set_accept_state(ssl_.get());
    return;
  }
  SSL_set_connect_state(ssl_.get());
  if (is_ip(host)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()), host.c_str());
  } else {
    SSL_set_tlsext_host_name(ssl_.get(), host.c_str());
    SSL_set1_host(ssl_.get(), host.c_str());
  }
}

Result<std::size_t> TlsStream::read(char* bytes, std::size_t size) {
  ERR_clear_error();
  errno = 0;
  const int count =
      SSL_read(ssl_.get(), bytes, static_cast<int>(std::min<std::size_t>(size, INT_MAX)));
  wants_write_ = false;
  if (count > 0) return static_cast<std::size_t>(count);
  const int why = SSL_get_error(ssl_.get(), count);
  wants_write_ = why == SSL_ERROR_WANT_WRITE;
  if (why == SSL_ERROR_WANT_READ || wants_write_) return std::size_t{0};
  return error_of(why);
}

Result<std::size_t> TlsStream::write(const char* bytes, std::size_t size) {
  ERR_clear_error();
  errno = 0;
  const int count =
      SSL_write(ssl_.get(), bytes, static_cast<int>(std::min<std::size_t>(size, INT_MAX)));
  write_waits_for_read_ = false;
  if (count > 0) return static_cast<std::size_t>(count);
  const int why = SSL_get_error(ssl_.get(), count);
  write_waits_for_read_ = why == SSL_ERROR_WANT_READ;
  if (why == SSL_ERROR_WANT_WRITE || write_waits_for_read_) return std::size_t{0};
  return error_of(why);
}

bool TlsStream::has_decrypted() const { return SSL_pending(ssl_.get()) > 0; }

std::string TlsStream::binding() const {
  constexpr std::string_view kLabel = "EXPORTER-quire-engine";
  std::string bytes(32, '\0');
  if (SSL_export_keying_material(ssl_.get(), reinterpret_cast<unsigned char*>(bytes.data()),
                                 bytes.size(), kLabel.data(), kLabel.size(), nullptr, 0, 0) != 1)
    throw Failure(ErrorCode::internal, "TLS: " + reason());
  return bytes;
}

// A socket's own errors are those of a peer that has gone; the others refuse it.
Error TlsStream::error_of(int why) const {
  const int system = errno;
  if (why == SSL_ERROR_ZERO_RETURN || (why == SSL_ERROR_SYSCALL && system == 0))
    return {ErrorCode::unavailable, "the connection was closed", {}};
  if (why == SSL_ERROR_SYSCALL) return {ErrorCode::unavailable, std::strerror(system), {}};
  const unsigned long code = ERR_peek_error();
  if (ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    ERR_clear_error();
    return {ErrorCode::unavailable, "the connection was closed", {}};
  }
  const long verified = SSL_get_verify_result(ssl_.get());
  if (verified != X509_V_OK && SSL_is_server(ssl_.get()) == 0) {
    ERR_clear_error();
    return {ErrorCode::unauthorized,
            std::string("TLS: the peer's certificate is refused: ") +
                X509_verify_cert_error_string(verified) + " (TlsContext::Files::authorities)",
            {}};
  }
  const int number = ERR_GET_REASON(code);
  const std::string words = reason();
  if (number == SSL_R_WRONG_VERSION_NUMBER || number == SSL_R_HTTP_REQUEST ||
      number == SSL_R_PACKET_LENGTH_TOO_LONG)
    return {ErrorCode::unauthorized,
            "TLS: the peer does not speak TLS (it was started without SocketOptions::tls)",
            {}};
  return {ErrorCode::unauthorized, "TLS: " + words, {}};
}

}  // namespace quire
