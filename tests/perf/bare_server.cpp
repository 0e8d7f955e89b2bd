// The least that a Beast server on coroutines can do, to hold ours against: one thread, no routes,
// no engine. POST /events/N/US: N server-sent events, each written alone, one every US microseconds
// (0: as fast as it goes) at the same moments for all streams, as an engine's steps would; any other
// POST: one JSON reply of fixed size. Prints its port.

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
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

using Clock = std::chrono::steady_clock;

asio::awaitable<void> stream(tcp::socket& socket, int count, std::chrono::microseconds step) {
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  co_await asio::async_write(socket, asio::buffer(head), asio::use_awaitable);
  char size[16];
  std::snprintf(size, sizeof size, "%zx\r\n", kEvent.size());
  const std::string chunk = size + kEvent + "\r\n", last = "0\r\n\r\n";
  asio::steady_timer timer(socket.get_executor());
  for (int i = 0; i < count; ++i) {
    if (step.count() > 0) {
      const auto now = Clock::now();
      timer.expires_at(now - now.time_since_epoch() % step + step);
      co_await timer.async_wait(asio::use_awaitable);
    }
    co_await asio::async_write(socket, asio::buffer(chunk), asio::use_awaitable);
  }
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
        const std::string numbers(target.substr(kEvents.size()));
        const auto slash = numbers.find('/');
        const int step = slash == numbers.npos ? 0 : std::atoi(numbers.c_str() + slash + 1);
        co_await stream(socket, std::atoi(numbers.c_str()), std::chrono::microseconds(step));
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
