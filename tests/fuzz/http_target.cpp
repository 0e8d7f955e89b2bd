// Requests on one connection, as a session reads them. What is taken must not depend on how the bytes
// came, and no limit is passed.

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <string>
#include <vector>

#include "server/http/connection.h"
#include "server/http/http_request.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {

namespace {

// Input that is there at once, a piece per read, and output that goes nowhere.
class Memory : public ByteStream {
 public:
  Memory(std::string_view input, std::size_t piece) : input_(input), piece_(piece) {}

  awaitable<bool> handshake() override { co_return true; }
  awaitable<std::size_t> read_some(std::span<char> buffer) override {
    const std::size_t size = std::min({buffer.size(), piece_, input_.size()});
    std::copy_n(input_.begin(), size, buffer.begin());
    input_.remove_prefix(size);
    co_return size;
  }
  std::size_t write_now(std::string_view bytes) override { return bytes.size(); }
  awaitable<bool> write(std::string_view) override { co_return true; }
  awaitable<void> shut_down() override { co_return; }
  std::uint64_t peer() override { return 1; }
  bool peer_has_left() override { return false; }
  void break_off() override { input_ = {}; }

 private:
  std::string_view input_;
  std::size_t piece_;
};

HttpLimits small_limits() {
  HttpLimits limits;
  limits.header_bytes = 2048;
  limits.body_bytes = 4096;
  return limits;
}

// What was taken. When what is malformed is refused may differ: Beast parses a head that came in pieces
// again only at its end. True: more may follow.
awaitable<bool> read_one(Connection& connection, std::vector<std::string>& seen) {
  static ByteBudget budget(1 << 20);
  RequestReader reader(connection);
  const HttpHead head = co_await reader.read_head(std::chrono::seconds(60));
  promise(!head.refusal || !head.refusal->message.empty(), "a refusal says why");
  if (!head.request) co_return false;
  const HttpRequest& request = *head.request;
  promise(request.path.size() <= 2048, "a path within its limit");
  seen.push_back(request.method_name + " " + request.path + " " + request.host + " " +
                 request.content_type + (request.keep_alive ? " stays" : " ends"));
  ByteBudget::Share share(budget);
  const HttpBody body = co_await reader.read_body(share);
  if (!body.bytes) co_return false;
  promise(body.bytes->size() <= connection.limits().body_bytes, "a body within its limit");
  promise(!reader.is_unfinished(), "a body that came whole ends its request");
  seen.push_back(*body.bytes);
  co_return request.keep_alive;
}

awaitable<void> read_all(asio::io_context& context, std::string_view bytes, std::size_t piece,
                         std::vector<std::string>& seen) {
  Connection connection(context.get_executor(), std::make_unique<Memory>(bytes, piece),
                        small_limits());
  while (co_await read_one(connection, seen)) {
  }
}

void rethrow(std::exception_ptr failure) {
  if (failure) std::rethrow_exception(failure);
}

std::vector<std::string> read_in(std::string_view bytes, std::size_t piece) {
  std::vector<std::string> seen;
  asio::io_context context(1);
  asio::co_spawn(context, read_all(context, bytes, piece, seen), rethrow);
  context.run();
  return seen;
}

}  // namespace

void http(std::string_view bytes) {
  if (bytes.size() > 16 * 1024) return;
  const auto whole = read_in(bytes, bytes.size() + 1);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}}) {
    const auto pieces = read_in(bytes, piece);
    if (pieces == whole) continue;
    for (const std::string& one : whole) std::fprintf(stderr, "whole: %s\n", one.c_str());
    for (const std::string& one : pieces) std::fprintf(stderr, "in pieces: %s\n", one.c_str());
    promise(false, "the same requests, however the bytes come");
  }
}

}  // namespace quire::fuzz
