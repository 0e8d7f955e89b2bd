#pragma once
// A blocking HTTP client on a plain socket: what tests send is what goes over the wire. Loopback
// only; every wait has a limit.

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::test {

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers{};  // names in lower case
  std::string body{};                            // chunks joined
};

class HttpClient {
 public:
  explicit HttpClient(int port);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void send(std::string_view bytes);
  // The next response; nullopt: the server closed the connection before it.
  std::optional<HttpResponse> receive();
  // Some bytes as they come; empty: the end, or nothing came within the time.
  std::string receive_some(std::chrono::milliseconds limit = std::chrono::seconds(20));
  bool closed_by_server(std::chrono::milliseconds limit = std::chrono::seconds(20));
  void set_receive_buffer(int bytes);

 private:
  std::string receive_more(std::chrono::milliseconds limit);
  std::string take(std::size_t size);
  std::optional<std::string> take_through(std::string_view end);

  int socket_;
  std::string buffer_;
};

std::string get_request(std::string_view path, std::string_view more_headers = {});
std::string post_request(std::string_view path, std::string_view body,
                         std::string_view more_headers = {});

// One request on a connection of its own.
HttpResponse get(int port, std::string_view path, std::string_view more_headers = {});
HttpResponse post(int port, std::string_view path, std::string_view body,
                  std::string_view more_headers = {});

// The data of each event of an event stream, in order.
std::vector<std::string> events_of(std::string_view body);

}  // namespace quire::test
