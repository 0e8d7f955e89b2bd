#include "load/connection.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace quire::load {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

asio::ssl::context& tls_context() {
  static asio::ssl::context context = [] {
    asio::ssl::context made(asio::ssl::context::tls_client);
    made.set_default_verify_paths();
    return made;
  }();
  return context;
}

asio::awaitable<void> connect_tcp(TcpStream& stream, const net::Url& url,
                                  std::chrono::milliseconds most_silence) {
  tcp::resolver resolver(stream.get_executor());
  const auto found = co_await resolver.async_resolve(url.host, url.port, asio::use_awaitable);
  limit_silence(stream, most_silence);
  co_await stream.async_connect(found, asio::use_awaitable);
  stream.socket().set_option(tcp::no_delay(true));
}

asio::awaitable<void> shake_hands(TlsStream& stream, const net::Url& url, bool check_certificate,
                                  std::chrono::milliseconds most_silence) {
  SSL_set_tlsext_host_name(stream.native_handle(), url.host.c_str());
  stream.set_verify_mode(check_certificate ? asio::ssl::verify_peer : asio::ssl::verify_none);
  if (check_certificate) stream.set_verify_callback(asio::ssl::host_name_verification(url.host));
  limit_silence(stream, most_silence);
  co_await stream.async_handshake(asio::ssl::stream_base::client, asio::use_awaitable);
}

}  // namespace

asio::awaitable<AnyStream> connect_to(asio::any_io_executor executor, const net::Url& url,
                                      bool check_certificate,
                                      std::chrono::milliseconds most_silence) {
  if (!url.unix_socket.empty()) {
    auto stream = std::make_unique<UnixStream>(executor);
    limit_silence(*stream, most_silence);
    co_await stream->async_connect(asio::local::stream_protocol::endpoint(url.unix_socket),
                                   asio::use_awaitable);
    co_return AnyStream(std::move(stream));
  }
  if (url.tls) {
    auto stream = std::make_unique<TlsStream>(executor, tls_context());
    co_await connect_tcp(stream->next_layer(), url, most_silence);
    co_await shake_hands(*stream, url, check_certificate, most_silence);
    co_return AnyStream(std::move(stream));
  }
  auto stream = std::make_unique<TcpStream>(executor);
  co_await connect_tcp(*stream, url, most_silence);
  co_return AnyStream(std::move(stream));
}

}  // namespace quire::load
