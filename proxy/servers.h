#pragma once
// Servers that do the same: taken in turn, those that failed lately last. Any thread.

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "net/url.h"

namespace quire::proxy {

class Servers {
 public:
  explicit Servers(std::vector<net::Url> urls) : states_(urls.begin(), urls.end()) {}

  bool empty() const { return states_.empty(); }
  // All of them, in the order in which to try.
  std::vector<net::Url> in_turn();
  void failed(const net::Url& url);
  void answered(const net::Url& url);

 private:
  using Clock = std::chrono::steady_clock;
  struct State {
    explicit State(net::Url u) : url(std::move(u)) {}
    net::Url url;
    Clock::time_point resting_until{};
  };
  State* find(const net::Url& url);

  std::mutex mutex_;
  std::vector<State> states_;
  std::size_t next_ = 0;
};

}  // namespace quire::proxy
