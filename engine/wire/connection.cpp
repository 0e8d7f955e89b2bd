#include "engine/wire/connection.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

constexpr std::string_view kProtocol = "quire-engine/1 ";  // then one byte: the role
constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kPreambleBytes = 16 + kNonceBytes;
constexpr std::size_t kProofBytes = 32;
constexpr std::size_t kReadBytes = 1 << 16;
constexpr std::size_t kReadAtOnce = 1 << 20;  // bytes, before somebody else's turn

using Role = WireConnection::Role;

char letter_of(Role role) { return role == Role::engine ? 'E' : 'F'; }
Role other(Role role) { return role == Role::engine ? Role::front_end : Role::engine; }

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1)
    throw Failure(ErrorCode::internal, "the system has no random bytes");
  return bytes;
}

std::string printable(std::string_view bytes) {
  std::string text(bytes.substr(0, 16));
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 32 || c > 126; }, '.');
  return text;
}

Error refused(std::string why) { return {ErrorCode::unauthorized, std::move(why), {}}; }

}  // namespace

WireConnection::WireConnection(Descriptor socket, Role role, std::string secret,
                       std::unique_ptr<TlsStream> tls)
    : socket_(std::move(socket)),
      tls_(std::move(tls)),
      role_(role),
      secret_(std::move(secret)),
      nonce_(random_bytes(kNonceBytes)) {
  out_ = std::string(kProtocol) + letter_of(role_) + nonce_;
}

bool WireConnection::wants_write() const {
  if (tls_ == nullptr) return queued_bytes() > 0;
  return tls_->wants_write() || (queued_bytes() > 0 && !tls_->write_waits_for_read());
}

Result<WireConnection::Received> WireConnection::receive(char* bytes, std::size_t size) {
  if (tls_ != nullptr) {
    auto count = tls_->read(bytes, size);
    if (!count) return count.error();
    return Received{*count, *count == 0};
  }
  const ssize_t count = ::recv(socket_.get(), bytes, size, 0);
  // ENOTCONN: the connection is still being made.
  if (count < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN))
    return Received{0, true};
  if (count < 0) return Error{ErrorCode::unavailable, std::strerror(errno), {}};
  if (count == 0) return Error{ErrorCode::unavailable, "the connection was closed", {}};
  return Received{static_cast<std::size_t>(count), false};
}

Result<void> WireConnection::read(std::vector<std::string>& frames) {
  std::array<char, kReadBytes> buffer;
  Result<void> end;  // what came before it counts
  for (std::size_t total = 0;
       total < kReadAtOnce || (tls_ != nullptr && tls_->has_decrypted());) {
    const auto got = receive(buffer.data(), buffer.size());
    if (!got) {
      end = got.error();
      if (!is_open_ && got.error().code == ErrorCode::unavailable)
        end = Error{ErrorCode::unavailable,
                    got.error().detail +
                        " before the peer proved itself (another secret on its side, or no engine)",
                    {}};
      break;
    }
    if (got->none_left) break;
    total += got->size;
    last_heard_ = std::chrono::steady_clock::now();
    std::string_view bytes(buffer.data(), got->size);
    if (!is_open_) {
      if (auto ok = open(bytes); !ok) return ok;
    }
    frames_.append(bytes);
  }
  while (is_open_) {
    const auto frame = frames_.next();
    if (!frame) return frame.error();
    if (!*frame) break;
    frames.emplace_back(**frame);
  }
  return end;
}

Result<void> WireConnection::open(std::string_view& bytes) {
  while (!is_open_ && !bytes.empty()) {
    const std::size_t whole = peer_nonce_.empty() ? kPreambleBytes : kProofBytes;
    const std::size_t count = std::min(bytes.size(), whole - opening_.size());
    opening_ += bytes.substr(0, count);
    bytes.remove_prefix(count);
    if (auto ok = peer_nonce_.empty() ? take_preamble() : take_proof(); !ok) return ok;
  }
  return {};
}

Result<void> WireConnection::take_preamble() {
  const std::size_t known = std::min(opening_.size(), kProtocol.size());
  if (opening_.starts_with("\x16\x03"))
    return refused("the peer speaks TLS, and this side was started without SocketOptions::tls");
  if (opening_.compare(0, known, kProtocol, 0, known) != 0)
    return refused("the peer does not speak " + std::string(kProtocol) + "(it began with \"" +
                   printable(opening_) + "\")");
  if (opening_.size() < kPreambleBytes) return {};
  if (opening_[kProtocol.size()] != letter_of(other(role_)))
    return refused(role_ == Role::engine ? "the peer is an engine too, not a front end"
                                         : "the peer is a front end too, not an engine");
  peer_nonce_ = opening_.substr(kProtocol.size() + 1);
  opening_.clear();
  out_ += proof(role_);
  return {};
}

Result<void> WireConnection::take_proof() {
  if (opening_.size() < kProofBytes) return {};
  const std::string expected = proof(other(role_));
  if (CRYPTO_memcmp(expected.data(), opening_.data(), kProofBytes) != 0)
    return refused("the peer has another secret");
  opening_.clear();
  is_open_ = true;
  opened_at_ = std::chrono::steady_clock::now();
  return {};
}

std::string WireConnection::proof(Role role) const {
  const bool engine = role_ == Role::engine;
  const std::string text = std::string(kProtocol) + letter_of(role) +
                           (engine ? peer_nonce_ + nonce_ : nonce_ + peer_nonce_) +
                           (tls_ != nullptr ? tls_->binding() : "");
  std::string digest(kProofBytes, '\0');
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(digest.data()), &size) == nullptr)
    throw Failure(ErrorCode::internal, "HMAC-SHA256 is not available");
  return digest;
}

Result<std::size_t> WireConnection::send_some() {
  if (tls_ != nullptr) return tls_->write(out_.data() + written_, queued_bytes());
  const ssize_t size = ::send(socket_.get(), out_.data() + written_, queued_bytes(), MSG_NOSIGNAL);
  if (size < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) return std::size_t{0};
  if (size < 0) return Error{ErrorCode::unavailable, std::strerror(errno), {}};
  return static_cast<std::size_t>(size);
}

Result<void> WireConnection::write() {
  while (queued_bytes() > 0) {
    const auto size = send_some();
    if (!size) return size.error();
    if (*size == 0) break;
    written_ += *size;
  }
  if (queued_bytes() == 0) {
    out_.clear();
    written_ = 0;
  } else if (written_ > kReadAtOnce) {
    out_.erase(0, written_);
    written_ = 0;
  }
  return {};
}

}  // namespace quire
