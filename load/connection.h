#pragma once
// The byte stream to a server: TCP, TLS or a Unix socket, each with a limit on silence.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>
#include <memory>
#include <variant>

#include "net/url.h"

namespace quire::load {

using TcpStream = boost::beast::tcp_stream;
using TlsStream = boost::asio::ssl::stream<TcpStream>;
using UnixStream = boost::beast::basic_stream<boost::asio::local::stream_protocol>;
using AnyStream = std::variant<std::unique_ptr<TcpStream>, std::unique_ptr<TlsStream>,
                               std::unique_ptr<UnixStream>>;

// The next operation ends with boost::beast::error::timeout after that.
template <class Stream>
void limit_silence(Stream& stream, std::chrono::milliseconds most) {
  boost::beast::get_lowest_layer(stream).expires_after(most);
}

// Throws boost::system::system_error: no such host, refused, a certificate that the system's
// authorities do not vouch for (where that is checked).
boost::asio::awaitable<AnyStream> connect_to(boost::asio::any_io_executor executor,
                                             const net::Url& url, bool check_certificate,
                                             std::chrono::milliseconds most_silence);

}  // namespace quire::load
