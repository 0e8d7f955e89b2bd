#pragma once
// Requests whose engine was lost when no other one was ready, or which want that one: they wait for
// the next, for a while.
// Any thread.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/error.h"
#include "engine/wire/messages.h"

namespace quire {

class EngineClient;
class GenerationBuffer;

class Orphans : public std::enable_shared_from_this<Orphans> {
 public:
  struct One {
    AddRequest request;
    std::shared_ptr<GenerationBuffer> buffer;
    std::string why = "the engine of this request was lost";
    Clock::time_point until = {};  // of one that is added for the first time: by the patience
  };

  Orphans(asio::any_io_executor executor, std::chrono::nanoseconds patience);

  void add(One one);
  std::size_t size() const;  // of those whose readers have not left, or may have yet to leave
  int num_of(const EngineClient& engine) const;  // that had the engine, or stand in its queue
  // Gives each to `place`; those that it could not place wait on. Until then all of them count.
  void place(const std::function<bool(One&)>& place);
  void fail(const Error& error);  // all of them
  void close();                   // the same, in silence; nothing is called any more

 private:
  std::vector<One> take();  // all of them whose readers have not left
  void wait_for_first();    // with the lock
  void expire();

  const std::chrono::nanoseconds patience_;
  mutable std::mutex mutex_;
  std::vector<One> waiting_;
  std::size_t num_taken_ = 0;  // which are being placed
  asio::steady_timer timer_;
  bool closed_ = false;
};

}  // namespace quire
