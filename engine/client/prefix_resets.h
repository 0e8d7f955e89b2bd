#pragma once
// Calls to forget the cached prefixes, and the engines' answers to them. Any strand.

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/experimental/concurrent_channel.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/async.h"
#include "engine/wire/messages.h"

namespace quire {

class PrefixResets {
 public:
  // Sends the call, by its number, to every engine that can answer; returns how many were asked.
  using Send = std::function<std::size_t(std::uint64_t call)>;

  // The answers of those that were asked, or what has come within ten seconds.
  awaitable<std::vector<PrefixCacheReset>> ask(Send send);

  // An engine's answer. Those to another front end's calls are dropped.
  void take(const PrefixCacheReset& answer);

 private:
  struct Waiter {
    using Signal = asio::experimental::concurrent_channel<void(boost::system::error_code)>;
    explicit Waiter(asio::any_io_executor executor) : answered(std::move(executor), 1) {}
    std::vector<PrefixCacheReset> answers;  // under mutex_
    Signal answered;
  };

  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Waiter>> waiters_;  // by call
  std::atomic<std::uint64_t> last_call_{0};
};

}  // namespace quire
