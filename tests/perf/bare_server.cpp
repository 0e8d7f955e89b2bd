// The least that a Beast server on coroutines can do, to hold ours against: one thread, no routes,
// no engine. POST /events/N: N server-sent events, each written alone; any other POST: one JSON
// reply of fixed size. Prints its port.

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

// As large as a chunk of ours.
const std::string kEvent =
    "data: {\"id\":\"chatcmpl-00000000000000000000000000000000\",\"object\":\"chat.completion.chunk\","
    "\"created\":1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"},"
    "\"logprobs\":null,\"finish_reason\":null}]}\n\n";

asio::awaitable<void> stream(tcp::socket& socket, int count) {
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  co_await asio::async_write(socket, asio::buffer(head), asio::use_awaitable);
  char size[16];
  std::snprintf(size, sizeof size, "%zx\r\n", kEvent.size());
  const std::string chunk = size + kEvent + "\r\n", last = "0\r\n\r\n";
  for (int i = 0; i < count; ++i)
    co_await asio::async_write(socket, asio::buffer(chunk), asio::use_awaitable);
  co_await asio::async_write(socket, asio::buffer(last), asio::use_awaitable);
}

asio::awaitable<void> reply(tcp::socket& socket) {
  http::response<http::string_body> response{http::status::ok, 11};
  response.set(http::field::content_type, "application/json");
  response.body() = kEvent + kEvent;
  response.prepare_payload();
  co_await http::async_write(socket, response, asio::use_awaitable);
}

asio::awaitable<void> serve(tcp::socket socket) {
  socket.set_option(tcp::no_delay(true));
  beast::flat_buffer buffer;
  try {
    while (true) {
      http::request<http::string_body> request;
      co_await http::async_read(socket, buffer, request, asio::use_awaitable);
      const std::string_view target(request.target().data(), request.target().size());
      constexpr std::string_view kEvents = "/events/";
      if (target.starts_with(kEvents)) {
        co_await stream(socket, std::atoi(std::string(target.substr(kEvents.size())).c_str()));
      } else {
        co_await reply(socket);
      }
    }
  } catch (const boost::system::system_error&) {
  }
}

asio::awaitable<void> accept(tcp::acceptor& acceptor) {
  while (true) {
    tcp::socket socket = co_await acceptor.async_accept(asio::use_awaitable);
    asio::co_spawn(acceptor.get_executor(), serve(std::move(socket)), asio::detached);
  }
}

}  // namespace

int main() {
  asio::io_context context(1);
  tcp::acceptor acceptor(context, {asio::ip::make_address("127.0.0.1"), 0});
  std::printf("http://127.0.0.1:%d\n", acceptor.local_endpoint().port());
  std::fflush(stdout);
  asio::co_spawn(context, accept(acceptor), asio::detached);
  context.run();
}
