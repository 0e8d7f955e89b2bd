#pragma once
// One client of the proxy: requests in, replies out, over HTTP/1.1. Blocks; one thread.

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::proxy {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct IncomingRequest {
  std::string method;
  std::string target;
  Headers headers;
  std::string body;
  bool keep_alive = true;
  int version = 11;  // of HTTP, times ten

  std::string_view header(std::string_view name) const;  // empty: none
};

class Connection {
 public:
  // Owns the socket. stop_event: a descriptor that becomes readable when the proxy ends; is_cut:
  // set when it waits no longer for what is being answered. Both outlive this.
  Connection(int socket, int stop_event, const std::atomic<bool>& is_cut);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Empty: the client left, was silent for too long, or the proxy ends. What is no HTTP is answered
  // here.
  std::optional<IncomingRequest> read_request();
  // Since when nothing of a next request has come, in the clock's ticks; 0: something has. Of any
  // thread.
  std::chrono::steady_clock::rep idle_since() const;
  bool has_left() const;  // or is cut
  bool is_cut() const;

  // False: the client has left.
  bool reply(int status, std::string_view type, std::string_view body, bool keep_alive);
  // Pieces follow, then end(); without a length they go in chunks, or to a client of HTTP/1.0 until
  // the connection ends, which end() then says with false.
  bool begin(int status, const Headers& headers, std::optional<std::size_t> length,
             bool keep_alive);
  bool piece(std::string_view bytes);
  bool end();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace quire::proxy
