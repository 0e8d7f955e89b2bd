#pragma once
// One request and its reply, as a handler sees them.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/async.h"
#include "base/error.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/spelling.h"
#include "server/http/http_request.h"
#include "server/http/sse.h"

namespace quire {

class Connection;
class KeyInUse;

struct Reply {
  int status = 200;
  std::string body{};
  std::string_view content_type = "application/json";
  int retry_after = 0;                 // seconds; 0: no such header
  std::string allow{};                 // the methods of a 405 or an OPTIONS
  std::string error{};                 // of a refusal: the sentence in its body
  std::string_view more_headers = {};  // whole lines, which outlive the reply
};

// How an API words a refusal, where it has a body of its own for them.
using ErrorForm = std::string (*)(int status, std::string_view message,
                                  std::string_view request_id);

// A function, not braces: g++ 12 destroys an aggregate twice that is made inside a co_await.
Reply json_reply(std::string body);

std::string made_up_id();  // random: 32 hexadecimal digits

class Exchange {
 public:
  // `reader` has read the head.
  Exchange(Connection& connection, RequestReader& reader, HttpRequest request);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const HttpRequest& request() const { return request_; }
  const std::string& id() const { return id_; }  // the client's X-Request-Id, or made up
  std::chrono::steady_clock::time_point arrival() const { return arrival_; }

  // The body into request(), under the budget. False: it did not come whole; a client that is still
  // there has been told why.
  awaitable<bool> receive_body(ByteBudget& budget);
  void drop_body();  // its bytes are needed no more

  // The server is full: only probes are answered on this connection.
  void set_probes_only() { probes_only_ = true; }
  bool probes_only() const { return probes_only_; }

  void set_cors(std::string lines) { cors_ = std::move(lines); }  // of every head that is sent
  // The key that the client showed; null: none was needed.
  void set_key(KeyInUse* key) { key_ = key; }
  KeyInUse* key() const { return key_; }

  // Who asks, for fair shares: the key that has a name, else key and address.
  std::uint64_t client() const;

  // Until when an answer is wanted: X-Request-Timeout, or `member` seconds where the body has said
  // so, whichever is earlier. Neither: for ever.
  std::chrono::steady_clock::time_point deadline(std::optional<double> member = {}) const;
  // The error names the header.
  Result<void> read_time_limit();

  // The engine that X-data-parallel-rank asks for; unset: any.
  std::optional<EngineId> engine() const { return engine_; }
  // Reads X-data-parallel-rank, a number below num_engines; the error names the header.
  Result<void> read_engine(int num_engines);

  // The name of a prefill that another server waits to be sent: as kv_transfer_params say it, over
  // NIXL as AddRequest::transfer_name. Empty: this request is none.
  void set_push_name(std::string name) { push_name_ = std::move(name); }
  const std::string& push_name() const { return push_name_; }

  // kv_transfer_params of a request whose prefill another server keeps, until an engine has it;
  // empty: it is none.
  void set_fetch_params(std::string params) { fetch_params_ = std::move(params); }
  const std::string& fetch_params() const { return fetch_params_; }
  // As AddRequest::transfer_name.
  void set_transfer_name(std::string name) { transfer_name_ = std::move(name); }
  const std::string& transfer_name() const { return transfer_name_; }

  // Counts among the replies that are written, from the head on until this ends.
  void count_reply(std::atomic<int>& replies) { replies_ = &replies; }

  // Called once, before the last bytes leave: what it counts, the client finds counted.
  void before_end(std::function<void()> call) { before_end_ = std::move(call); }
  void end();  // for a reply that did not come to its last bytes

  // For all refusals of this request; its id is in the header that this API's clients look at, too.
  void use_error_form(ErrorForm form) { error_form_ = form; }
  void use_spelling(Spelling spelling) { spelling_ = spelling; }
  Error spelled(Error error) const;  // of one that leaves in a stream
  // Before the body was received it ends the connection.
  awaitable<void> reply(Reply reply);
  // The head goes out with the first event.
  SseWriter& begin_sse();
  // Ends when the client has gone. What it sends meanwhile is kept for later.
  awaitable<void> peer_closed();
  // The same for work that a call ends; cheaper. For the lifetime of the object.
  class LeavingWatch {
   public:
    LeavingWatch(Exchange& exchange, std::function<void()> on_leaving);
    ~LeavingWatch();
    LeavingWatch(const LeavingWatch&) = delete;
    LeavingWatch& operator=(const LeavingWatch&) = delete;
    bool has_left() const { return left_; }

   private:
    Exchange& exchange_;
    bool left_ = false;
  };

  int status() const { return status_; }  // 0: no reply yet
  bool is_stream() const { return sse_.has_value(); }
  // Size of the body that was received, and of the one that was replied; 0 for a stream.
  std::size_t request_bytes() const { return request_bytes_; }
  std::size_t reply_bytes() const { return reply_bytes_; }
  // The connection can carry another request.
  bool keep_alive() const;
  void close_after() { request_.keep_alive = false; }

 private:
  std::string head(const Reply& reply, std::string_view framing) const;
  void begin_reply(int status);

  Connection& connection_;
  RequestReader& reader_;
  HttpRequest request_;
  std::optional<ByteBudget::Share> body_share_;
  std::string id_;
  std::string cors_;
  KeyInUse* key_ = nullptr;
  std::chrono::steady_clock::time_point arrival_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  std::optional<EngineId> engine_;
  std::string push_name_, fetch_params_, transfer_name_;
  int status_ = 0;
  std::size_t request_bytes_ = 0, reply_bytes_ = 0;
  std::atomic<int>* replies_ = nullptr;
  bool probes_only_ = false;
  bool written_ = true;
  std::function<void()> before_end_;
  ErrorForm error_form_ = nullptr;
  Spelling spelling_ = nullptr;
  std::optional<SseWriter> sse_;
};

}  // namespace quire
