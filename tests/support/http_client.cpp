#include "tests/support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <string>
#include <utility>

namespace quire::test {

namespace {

constexpr std::chrono::seconds kLimit{60};  // sanitizers on a busy machine are slow

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

HttpResponse parse_head(std::string_view head) {
  HttpResponse response;
  response.status = std::stoi(std::string(head.substr(head.find(' ') + 1, 3)));
  std::size_t at = head.find("\r\n") + 2;
  while (at < head.size()) {
    const std::size_t end = head.find("\r\n", at);
    const std::string_view line = head.substr(at, end - at);
    const std::size_t colon = line.find(": ");
    response.headers[lower(std::string(line.substr(0, colon)))] = line.substr(colon + 2);
    at = end + 2;
  }
  return response;
}

}  // namespace

HttpClient::HttpClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ::close(socket_);
    throw std::runtime_error("cannot connect");
  }
}

HttpClient::~HttpClient() { ::close(socket_); }

void HttpClient::set_receive_buffer(int bytes) {
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

void HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the server has closed; what it said can still be read
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::string HttpClient::receive_some(std::chrono::milliseconds limit) {
  if (!buffer_.empty()) return std::exchange(buffer_, {});
  return receive_more(limit);
}

std::string HttpClient::receive_more(std::chrono::milliseconds limit) {
  pollfd waiting{socket_, POLLIN, 0};
  if (::poll(&waiting, 1, static_cast<int>(limit.count())) <= 0) return {};
  std::string bytes(64 * 1024, '\0');
  const ssize_t size = ::recv(socket_, bytes.data(), bytes.size(), 0);
  bytes.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return bytes;
}

bool HttpClient::closed_by_server(std::chrono::milliseconds limit) {
  pollfd waiting{socket_, POLLIN, 0};
  char byte;
  return ::poll(&waiting, 1, static_cast<int>(limit.count())) > 0 &&
         ::recv(socket_, &byte, 1, MSG_PEEK) <= 0;
}

std::string HttpClient::take(std::size_t size) {
  while (buffer_.size() < size) {
    std::string more = receive_more(kLimit);
    if (more.empty()) throw std::runtime_error("the response was cut short");
    buffer_ += more;
  }
  std::string taken = buffer_.substr(0, size);
  buffer_.erase(0, size);
  return taken;
}

std::optional<std::string> HttpClient::take_through(std::string_view end) {
  while (buffer_.find(end) == std::string::npos) {
    std::string more = receive_more(kLimit);
    if (more.empty()) return std::nullopt;
    buffer_ += more;
  }
  return take(buffer_.find(end) + end.size());
}

std::optional<HttpResponse> HttpClient::receive() {
  const auto head = take_through("\r\n\r\n");
  if (!head) return std::nullopt;
  HttpResponse response = parse_head(std::string_view(*head).substr(0, head->size() - 2));
  if (response.status == 100) return response;
  if (response.headers["transfer-encoding"] != "chunked") {
    const std::string& length = response.headers["content-length"];
    response.body = take(length.empty() ? 0 : std::stoul(length));
    return response;
  }
  while (true) {
    const std::string size_line = take_through("\r\n").value();
    const std::size_t size = std::stoul(size_line, nullptr, 16);
    response.body += take(size);
    take(2);
    if (size == 0) return response;
  }
}

std::string get_request(std::string_view path, std::string_view more_headers) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(more_headers) +
         "\r\n";
}

std::string post_request(std::string_view path, std::string_view body,
                         std::string_view more_headers) {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + std::string(more_headers) + "\r\n" +
         std::string(body);
}

HttpResponse get(int port, std::string_view path, std::string_view more_headers) {
  HttpClient client(port);
  client.send(get_request(path, more_headers));
  return client.receive().value();
}

HttpResponse post(int port, std::string_view path, std::string_view body,
                  std::string_view more_headers) {
  HttpClient client(port);
  client.send(post_request(path, body, more_headers));
  return client.receive().value();
}

std::vector<std::string> events_of(std::string_view body) {
  std::vector<std::string> events;
  while (!body.empty()) {
    const std::size_t end = body.find("\n\n");
    std::string_view event = body.substr(0, end);
    if (event.starts_with("event: ")) event.remove_prefix(event.find('\n') + 1);
    if (event.starts_with("data: ")) events.emplace_back(event.substr(6));
    if (end == std::string_view::npos) break;
    body.remove_prefix(end + 2);
  }
  return events;
}

}  // namespace quire::test
