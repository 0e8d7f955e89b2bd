#pragma once
// Where outputs of one request gather between the engine's client, which fills it, and the
// Generation, which empties it. Any thread. Holds at most what the request may produce: max_tokens.

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/experimental/concurrent_channel.hpp>
#include <mutex>
#include <optional>

#include "base/async.h"
#include "engine/wire/messages.h"

namespace quire {

class EngineClient;

class GenerationBuffer {
 public:
  GenerationBuffer(asio::any_io_executor executor, RequestId id)
      : id(id), wake_(std::move(executor), 1) {
    header_.id = id;
  }

  const RequestId id;
  std::atomic<EngineClient*> client{nullptr};  // of the engine that has it
  std::atomic<bool> stays{false};              // with that engine: it was asked for by its number

  // Wakes the reader if it waits. Outputs after the finish are dropped.
  void deliver(RequestOutput output);
  void deliver(TokenId token, Clock::time_point time);
  void finish(FinishReason reason, std::optional<Error> error);
  // The reader can forget what it has read: it has shown nothing of it.
  void let_start_over();
  // True, once, while nothing has been read or the reader can forget it: what came is forgotten, as
  // an engine begins anew.
  bool restart();
  // Nothing will be read any more.
  void close();

  // What has gathered. Empty and !ended(): wait.
  std::optional<RequestOutput> take();
  void reuse(std::vector<TokenId> ids);  // their memory, for the next output
  // When the tokens came that were taken last. For the reader alone.
  const std::vector<Clock::time_point>& taken_times() const { return taken_times_; }
  // What was taken last begins the answer anew: what was taken before it counts no more. Likewise
  // the reader's own.
  bool taken_starts_over() const { return taken_starts_over_; }
  bool ended() const;  // finished, and the finish was taken
  bool finished() const;
  awaitable<void> wait();

 private:
  using Wake = asio::experimental::concurrent_channel<void(boost::system::error_code)>;

  bool reader_to_wake();
  RequestOutput& pending();
  void note_times(std::size_t tokens, Clock::time_point last);

  mutable std::mutex mutex_;
  RequestOutput header_;  // what next() repeats with every output: times and counts so far
  std::optional<RequestOutput> pending_;
  std::vector<TokenId> spare_;
  std::vector<Clock::time_point> times_, taken_times_;  // one per token of the output
  std::optional<Clock::time_point> latest_token_;
  bool finished_ = false;
  bool begun_ = false;      // something was read
  bool may_start_over_ = false;  // though something was read
  bool restarted_ = false;       // a request that ends two engines may be to blame
  bool starts_over_ = false, taken_starts_over_ = false;
  bool reader_waits_ = false;
  Wake wake_;
};

}  // namespace quire
