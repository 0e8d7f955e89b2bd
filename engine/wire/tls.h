#pragma once
// TLS 1.3 between a front end and an engine over TCP. Who accepted the connection shows a
// certificate, whoever dialled checks it against the authority and the host's name; an acceptor
// that has an authority too asks for the dialler's certificate. The secret is proved inside, bound
// to this very connection, so that neither stands for the other.

#include <memory>
#include <string>

#include "base/result.h"

struct ssl_st;
struct ssl_ctx_st;

namespace quire {

// PEM files. Immutable, any thread.
class TlsContext {
 public:
  struct Files {
    std::string certificate = {};  // chain; with key. Empty: this side cannot accept
    std::string key = {};
    std::string authorities = {};  // empty: this side cannot dial
  };
  static Result<std::shared_ptr<const TlsContext>> make(const Files& files);

  bool can_accept() const { return can_accept_; }
  bool can_dial() const { return can_dial_; }
  ssl_ctx_st* handle() const { return context_.get(); }

 private:
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };
  TlsContext() = default;
  std::unique_ptr<ssl_ctx_st, Free> context_;
  bool can_accept_ = false;
  bool can_dial_ = false;
};

// Over a non-blocking socket that somebody else owns. Of one thread.
class TlsStream {
 public:
  // host: of the acceptor, as the dialler named it; empty: this side accepted.
  TlsStream(const TlsContext& context, int socket, const std::string& host);

  // Bytes moved; 0: not now. Error: the peer closed the line (unavailable), or is refused.
  Result<std::size_t> read(char* bytes, std::size_t size);
  Result<std::size_t> write(const char* bytes, std::size_t size);
  bool has_decrypted() const;  // read() has more, whatever the socket says
  // What it waits for besides bytes to come.
  bool wants_write() const { return wants_write_; }
  bool write_waits_for_read() const { return write_waits_for_read_; }

  // 32 bytes that both sides of this connection know and nobody else; once bytes have moved.
  std::string binding() const;

 private:
  struct Free {
    void operator()(ssl_st* ssl) const;
  };
  Error error_of(int result) const;

  std::unique_ptr<ssl_st, Free> ssl_;
  bool wants_write_ = false;
  bool write_waits_for_read_ = false;
};

}  // namespace quire
