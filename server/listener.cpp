#include "server/listener.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <variant>

#include "base/log.h"
#include "base/strand.h"
#include "base/task_group.h"
#include "server/http/byte_streams.h"
#include "server/session.h"

namespace quire {

namespace {

using Tcp = asio::ip::tcp;
using Local = asio::local::stream_protocol;

constexpr std::chrono::milliseconds kPauseWhenFull{50};

Failure cannot_listen(const std::string& where, const error_code& error, std::string field) {
  return Failure({ErrorCode::unavailable,
                  fmt::format("cannot listen on {}: {}", where, error.message()), std::move(field)});
}

Tcp::acceptor listen_tcp(asio::any_io_executor strand, const ServerConfig& config) {
  const std::string where = fmt::format("{}:{}", config.host, config.port);
  try {
    const auto found = Tcp::resolver(strand).resolve(config.host, std::to_string(config.port),
                                                     Tcp::resolver::passive);
    Tcp::acceptor acceptor(strand, found.begin()->endpoint().protocol());
    acceptor.set_option(Tcp::acceptor::reuse_address(true));
    acceptor.bind(found.begin()->endpoint());
    acceptor.listen(asio::socket_base::max_listen_connections);
    return acceptor;
  } catch (const boost::system::system_error& e) {
    throw cannot_listen(where, e.code(), "ServerConfig::port");
  }
}

Failure uds_taken(const std::string& path, std::string_view why) {
  return Failure({ErrorCode::unavailable, fmt::format("ServerConfig::uds {}: {}", path, why),
                  "ServerConfig::uds"});
}

// Takes away what an earlier run left behind, and nothing else.
void remove_stale_socket(const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return;
  if (!S_ISSOCK(found.st_mode)) throw uds_taken(path, "there is a file that is not a socket");
  asio::io_context context;
  Local::socket socket(context, Local());
  socket.non_blocking(true);  // whose queue of connections is full would let this one wait
  error_code error;
  socket.connect(Local::endpoint(path), error);
  if (error != asio::error::connection_refused) {
    throw uds_taken(path, error ? error.message() : "another server listens there");
  }
  ::unlink(path.c_str());
}

// A socket in the file system; at its end the file goes, if it is still this one.
class LocalSocketFile {
 public:
  LocalSocketFile(asio::any_io_executor strand, std::string path) : path_(std::move(path)) {
    try {
      const Local::endpoint endpoint(path_);
      remove_stale_socket(path_);
      acceptor_.emplace(strand, endpoint);
    } catch (const boost::system::system_error& e) {
      throw cannot_listen(path_, e.code(), "ServerConfig::uds");
    }
    ::lstat(path_.c_str(), &made_);
  }
  ~LocalSocketFile() {
    struct stat found {};
    const bool is_ours = ::lstat(path_.c_str(), &found) == 0 && found.st_dev == made_.st_dev &&
                         found.st_ino == made_.st_ino;
    if (is_ours) ::unlink(path_.c_str());
  }
  LocalSocketFile(const LocalSocketFile&) = delete;
  LocalSocketFile& operator=(const LocalSocketFile&) = delete;

  Local::acceptor& acceptor() { return *acceptor_; }

 private:
  std::string path_;
  std::optional<Local::acceptor> acceptor_;
  struct stat made_ {};
};

// A client without a certificate of these authorities does not get through the handshake.
void ask_for_certificates(asio::ssl::context& context, const ServerConfig& config) {
  if (config.ssl_cert_reqs == ClientCertificates::none) return;
  error_code error;
  context.load_verify_file(config.ssl_ca_certs, error);
  STACK_OF(X509_NAME)* const names =
      error ? nullptr : SSL_load_client_CA_file(config.ssl_ca_certs.c_str());
  if (names == nullptr) {
    throw Failure({ErrorCode::invalid_argument,
                   fmt::format("ServerConfig::ssl_ca_certs: {}: {}", config.ssl_ca_certs,
                               error ? error.message() : "no certificate in it"),
                   "ServerConfig::ssl_ca_certs"});
  }
  SSL_CTX_set_client_CA_list(context.native_handle(), names);  // takes it over
  const bool must = config.ssl_cert_reqs == ClientCertificates::required;
  context.set_verify_mode(must ? asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert
                               : asio::ssl::verify_peer);
}

// Every client would fail, and only clients would see why.
void warn_of_dates(SSL_CTX* context, const std::string& file) {
  const X509* const certificate = SSL_CTX_get0_certificate(context);
  const ASN1_TIME* const begin = X509_get0_notBefore(certificate);
  const ASN1_TIME* const end = X509_get0_notAfter(certificate);
  const bool is_early = X509_cmp_current_time(begin) > 0;
  if (!is_early && X509_cmp_current_time(end) > 0) return;
  std::tm date{};
  ASN1_TIME_to_tm(is_early ? begin : end, &date);
  log::warn(is_early ? "tls.certificate_not_yet_valid" : "tls.certificate_expired",
            {{"file", file}, {"date", fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", date)}});
}

std::optional<asio::ssl::context> tls_context(const ServerConfig& config) {
  if (config.ssl_certfile.empty()) return std::nullopt;
  asio::ssl::context context(asio::ssl::context::tls_server);
  const auto check = [](error_code error, std::string_view field, const std::string& file) {
    if (!error) return;
    throw Failure({ErrorCode::invalid_argument,
                   fmt::format("{}: {}: {}", field, file, error.message()), std::string(field)});
  };
  error_code error;
  context.use_certificate_chain_file(config.ssl_certfile, error);
  check(error, "ServerConfig::ssl_certfile", config.ssl_certfile);
  context.use_private_key_file(config.ssl_keyfile, asio::ssl::context::pem, error);
  const auto reason = ERR_GET_REASON(static_cast<unsigned long>(error.value()));
  const bool is_other = error && reason == X509_R_KEY_VALUES_MISMATCH;
  if (!is_other) check(error, "ServerConfig::ssl_keyfile", config.ssl_keyfile);
  if (is_other || SSL_CTX_check_private_key(context.native_handle()) != 1) {
    throw Failure({ErrorCode::invalid_argument,
                   fmt::format("ServerConfig::ssl_keyfile: {} is not the key of {}",
                               config.ssl_keyfile, config.ssl_certfile),
                   "ServerConfig::ssl_keyfile"});
  }
  warn_of_dates(context.native_handle(), config.ssl_certfile);
  ask_for_certificates(context, config);
  return context;
}

// How many connections each address has. Any thread.
class PerAddress {
 public:
  class Held {
   public:
    Held(PerAddress& all, std::uint64_t address) : all_(all), address_(address) {
      const std::lock_guard lock(all_.mutex_);
      count_ = ++all_.counts_[address_];
    }
    ~Held() {
      const std::lock_guard lock(all_.mutex_);
      if (const auto at = all_.counts_.find(address_); --at->second == 0) all_.counts_.erase(at);
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    std::size_t count() const { return count_; }  // with this one

   private:
    PerAddress& all_;
    std::uint64_t address_;
    std::size_t count_ = 0;
  };

 private:
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::size_t> counts_;
};

awaitable<void> counted_session(asio::any_io_executor strand, std::unique_ptr<ByteStream> stream,
                                AppState& app, PerAddress& addresses, bool probes_only) {
  const std::uint64_t address = stream->peer();  // 0: a Unix socket
  const PerAddress::Held held(addresses, address);
  const std::size_t most = app.config.limits.connections_per_address;
  probes_only |= most > 0 && address != 0 && held.count() > most;
  struct Count {
    Metrics& metrics;
    explicit Count(Metrics& m) : metrics(m) { metrics.connection_opened(); }
    ~Count() { metrics.connection_closed(); }
  } count(app.metrics);
  co_await serve_connection(strand, std::move(stream), app, probes_only);
}

}  // namespace

struct Listener::State {
  State(asio::any_io_executor p, asio::any_io_executor s, const ServerConfig& c)
      : pool(p), strand(s), config(c), tls(tls_context(c)), sessions(s) {
    if (config.uds.empty()) {
      tcp.emplace(listen_tcp(s, config));
    } else {
      local.emplace(s, config.uds);
    }
  }

  awaitable<std::unique_ptr<ByteStream>> accept_one(asio::any_io_executor strand_of_session,
                                                    error_code& error) {
    auto token = asio::redirect_error(asio::use_awaitable, error);
    if (local) {
      auto socket = co_await local->acceptor().async_accept(strand_of_session, token);
      co_return std::make_unique<LocalByteStream>(Local::socket(std::move(socket)));
    }
    Tcp::socket socket(co_await tcp->async_accept(strand_of_session, token));
    if (error) co_return nullptr;
    error_code ignored;
    socket.set_option(Tcp::no_delay(true), ignored);
    if (!tls) co_return std::make_unique<TcpByteStream>(std::move(socket));
    co_return std::make_unique<TlsByteStream>(
        asio::ssl::stream<Tcp::socket>(std::move(socket), *tls));
  }

  asio::any_io_executor pool, strand;
  const ServerConfig& config;
  std::optional<asio::ssl::context> tls;
  std::optional<Tcp::acceptor> tcp;
  std::optional<LocalSocketFile> local;
  PerAddress addresses;  // before the sessions, which count in it
  TaskGroup sessions;
  log::Limit complaints{1};  // a second
};

Listener::Listener(asio::any_io_executor pool, asio::any_io_executor strand,
                   const ServerConfig& config)
    : state_(std::make_unique<State>(std::move(pool), std::move(strand), config)) {}

Listener::~Listener() = default;

int Listener::port() const { return state_->tcp ? state_->tcp->local_endpoint().port() : 0; }

std::string Listener::address() const {
  if (state_->local) return "unix:" + state_->config.uds;
  const auto& host = state_->config.host;
  const bool any = host.empty() || host == "0.0.0.0" || host == "::";
  const bool is_v6 = !any && host.find(':') != std::string::npos;
  return fmt::format("{}://{}:{}", state_->tls ? "https" : "http",
                     any ? "127.0.0.1" : is_v6 ? "[" + host + "]" : host, port());
}

awaitable<void> Listener::accept(AppState& app) {
  const auto is_open = [this] {
    return state_->tcp ? state_->tcp->is_open() : state_->local->acceptor().is_open();
  };
  while (is_open()) {
    const HttpLimits& limits = state_->config.limits;
    if (state_->sessions.size() >= limits.max_connections + limits.probe_connections) {
      co_await sleep_for(kPauseWhenFull);
      continue;
    }
    const asio::any_io_executor strand = new_strand(state_->pool);
    error_code error;
    auto stream = co_await state_->accept_one(strand, error);
    if (error == asio::error::operation_aborted) break;
    if (error) {  // out of descriptors, or the client left before it was accepted
      if (state_->complaints.allows()) log::warn("http.accept_failed", {{"error", error.message()}});
      co_await sleep_for(kPauseWhenFull);
      continue;
    }
    const bool is_full = state_->sessions.size() >= limits.max_connections;
    state_->sessions.spawn_on(strand, counted_session(strand, std::move(stream), app, state_->addresses, is_full));
  }
}

bool Listener::has_tls() const { return state_->tls.has_value(); }

Result<void> Listener::reload_tls() {
  try {
    state_->tls = tls_context(state_->config);  // running connections hold the old one
    return {};
  } catch (const Failure& failure) {
    return failure.error();
  }
}

void Listener::stop(AppState& app) {
  app.stopping = true;
  error_code ignored;
  if (state_->tcp) state_->tcp->close(ignored);
  if (state_->local) state_->local->acceptor().close(ignored);
  state_->sessions.cancel(Cancel::finish);
}

awaitable<void> Listener::wait() { co_await state_->sessions.wait(); }
awaitable<void> Listener::close() { co_await state_->sessions.close(); }

}  // namespace quire
