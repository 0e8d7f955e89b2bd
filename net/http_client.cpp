#include "net/http_client.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include "base/error.h"

namespace quire::net {

namespace {

namespace http = boost::beast::http;
using boost::system::error_code;
using boost::beast::string_view;

constexpr std::size_t kMaxBody = 64 << 20;
constexpr std::uint32_t kMaxHead = 256 << 10;
constexpr std::size_t kReadSize = 256 << 10;

// Gives the body away as it is read, whichever way it is framed.
class Parser : public http::basic_parser<false> {
 public:
  Parser(Response& response, const BodySink& sink) : response_(response), sink_(sink) {
    eager(true);
    header_limit(kMaxHead);
    body_limit(boost::none);
  }
  bool is_refused() const { return refused_; }

 private:
  void on_request_impl(http::verb, string_view, string_view, int, error_code&) override {}
  void on_response_impl(int code, string_view, int, error_code& error) override {
    error = {};
    response_.status = code;
  }
  void on_field_impl(http::field, string_view name, string_view value, error_code& error) override {
    error = {};
    response_.headers.emplace_back(name, value);
  }
  void on_header_impl(error_code& error) override { error = {}; }
  void on_body_init_impl(boost::optional<std::uint64_t> const&, error_code& error) override {
    error = {};
  }
  std::size_t on_body_impl(string_view piece, error_code& error) override {
    return take(piece, error);
  }
  void on_chunk_header_impl(std::uint64_t, string_view, error_code& error) override { error = {}; }
  std::size_t on_chunk_body_impl(std::uint64_t, string_view piece, error_code& error) override {
    return take(piece, error);
  }
  void on_finish_impl(error_code& error) override { error = {}; }

  std::size_t take(string_view piece, error_code& error) {
    error = {};
    if (sink_) {
      refused_ = !sink_(response_, std::string_view(piece.data(), piece.size()));
    } else {
      response_.body.append(piece.data(), piece.size());
      refused_ = response_.body.size() > kMaxBody;
    }
    if (refused_) error = http::error::body_limit;
    return piece.size();
  }

  Response& response_;
  const BodySink& sink_;
  bool refused_ = false;
};

// A line's end in a key or a path would be another header.
void check_line(std::string_view text, const std::string& what) {
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  if (std::ranges::none_of(text, is_control)) return;
  throw Failure(ErrorCode::invalid_argument, what + " has a control character in it");
}

std::string head_of(const Request& request) {
  check_line(request.method + request.url.target, "the path");
  const std::string& target = request.url.target;
  std::string head = request.method + " " + (target.empty() ? "/" : target) + " HTTP/1.1\r\nHost: " +
                     request.url.host_header() + "\r\n";
  for (const auto& [name, value] : request.headers) {
    check_line(name + value, "the header " + name);
    head += name + ": " + value + "\r\n";
  }
  // A body without its length would be read as the next request.
  if (request.method == "POST" || !request.body.empty())
    head += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  return head + "\r\n";
}

}  // namespace

std::string_view Response::header(std::string_view name) const {
  for (auto one = headers.rbegin(); one != headers.rend(); ++one) {
    if (boost::beast::iequals(one->first, name)) return one->second;
  }
  return {};
}

struct Client::State {
  Patience patience;
  std::optional<Url> origin;
  std::unique_ptr<Socket> socket;
  bool used = false;  // the connection has carried a request before

  void connect(const Url& url) {
    used = socket && origin->same_origin(url);
    if (used) return;
    socket.reset();
    origin = url;
    socket = std::make_unique<Socket>(url, patience);
  }

  // True: there was a reply, or the beginning of one.
  bool exchange(const Request& request, const BodySink& sink, Response& response) {
    Parser parser(response, sink);
    if (request.method == "HEAD") parser.skip(true);
    bool began = false;
    try {
      write(head_of(request) + request.body);
      read_reply(parser, began);
    } catch (const Failure& failure) {
      const bool stale = used && !began && failure.error().code == ErrorCode::unavailable;
      socket.reset();
      if (!stale) throw;
      return false;
    }
    if (!parser.keep_alive() || parser.is_refused()) socket.reset();
    return true;
  }

  // Who refuses a body may answer and hang up before all of it is there: what it said is read.
  void write(const std::string& bytes) {
    try {
      socket->write(bytes);
    } catch (const Failure& failure) {
      if (failure.error().code != ErrorCode::unavailable || used) throw;
    }
  }

  void read_reply(Parser& parser, bool& began) {
    std::string input;
    std::vector<char> buffer(kReadSize);
    while (!parser.is_done()) {
      const std::size_t size = socket->read(buffer);
      if (size == 0) return end_of_input(parser);
      began = true;
      input.append(buffer.data(), size);
      if (!feed(parser, input)) return;
    }
  }

  // False: the sink wants no more.
  static bool feed(Parser& parser, std::string& input) {
    std::size_t used_bytes = 0;
    error_code error;
    while (used_bytes < input.size() && !parser.is_done()) {
      const std::size_t step = parser.put(
          boost::asio::buffer(input.data() + used_bytes, input.size() - used_bytes), error);
      used_bytes += step;
      if (error == http::error::need_more) break;
      if (parser.is_refused()) return false;
      if (error) throw Failure(ErrorCode::unavailable, "not a valid HTTP reply: " + error.message());
    }
    input.erase(0, used_bytes);
    return true;
  }

  static void end_of_input(Parser& parser) {
    error_code error;
    if (parser.got_some()) parser.put_eof(error);
    if (!parser.got_some() || error) {
      throw Failure(ErrorCode::unavailable, "the connection ended before the reply did");
    }
  }
};

Client::Client(Patience patience) : state_(std::make_unique<State>()) {
  state_->patience = std::move(patience);
}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;

Response Client::send(const Request& request, const BodySink& sink) {
  for (int attempt = 0;; ++attempt) {
    Response response;
    state_->connect(request.url);
    // A kept connection may have been closed meanwhile: once more over a new one.
    if (state_->exchange(request, sink, response) || attempt > 0) return response;
  }
}

}  // namespace quire::net
