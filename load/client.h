#pragma once
// One kept connection to an OpenAI-compatible server: sends a request, reads the event stream,
// takes times.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "net/url.h"

namespace quire::load {

using Clock = std::chrono::steady_clock;

struct Target {
  net::Url url;  // http, https or unix; requests go to its path + "/v1/…"
  std::string api_key;
  bool check_certificate = true;
  std::chrono::milliseconds most_silence = std::chrono::minutes(10);  // then a request has failed

  // Throws Failure for what is no such address. A path "/v1" at the end, as clients of the OpenAI
  // libraries write it, says nothing new.
  static Target parse(const std::string& url);
};

enum class Outcome : std::uint8_t { ok, http_error, stream_error, incomplete, transport_error };
std::string_view name_of(Outcome outcome);

// Times are seconds since the run began.
struct Record {
  Outcome outcome = Outcome::transport_error;
  int status = 0;
  std::string error;          // one line, for anything but ok
  std::string finish_reason;  // of the last choice that ended
  int turn = 0;               // of its conversation
  double due = 0;             // when it should have been sent
  double sent = 0;
  double first_token = 0;
  double end = 0;
  std::vector<float> gaps;  // seconds between successive chunks that carry text
  int prompt_tokens = 0;    // from usage
  int output_tokens = 0;
};

struct HttpRefusal : Failure {
  HttpRefusal(int status, const std::string& what)
      : Failure(ErrorCode::unavailable, what), status(status) {}
  int status;
};

class Client {
 public:
  // The target outlives the client.
  Client(boost::asio::any_io_executor executor, const Target& target, Clock::time_point begin);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Connects first where it must. `answer` is the text that came, also of a stream that broke off.
  // Never throws for what the network or the server does: that is the outcome.
  boost::asio::awaitable<Record> post(const std::string& path, const std::string& body, double due,
                                      std::string& answer);
  // A small GET; throws HttpRefusal when there is no 200, Failure with why there is no reply at
  // all.
  boost::asio::awaitable<std::string> get(const std::string& path);

 private:
  struct Connection;
  boost::asio::awaitable<void> connect();
  std::string text_of(const boost::system::error_code& error) const;

  boost::asio::any_io_executor executor_;
  const Target& target_;
  Clock::time_point begin_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace quire::load
