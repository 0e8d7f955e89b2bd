#pragma once
// Servers that do the same: taken in turn. Those that failed lately rest. Any thread.

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "net/url.h"

namespace quire::proxy {

struct Turn {
  net::Url url;
  bool is_doubtful = false;  // it failed, and has not answered since
};

class Servers {
 public:
  explicit Servers(std::vector<net::Url> urls) : states_(urls.begin(), urls.end()) {}

  bool empty() const { return states_.empty(); }
  // Those that do not rest, in the order in which to try: whose turn it is, then the others, each
  // as often as any other. One whose rest is over comes first, for one request alone until it
  // answers.
  std::vector<Turn> awake();
  // And behind them those that rest.
  std::vector<Turn> all();
  bool is_resting(const net::Url& url);
  void failed(const net::Url& url);
  void answered(const net::Url& url);

 private:
  using Clock = std::chrono::steady_clock;
  struct State {
    explicit State(net::Url u) : url(std::move(u)) {}
    net::Url url;
    bool has_failed = false;
    Clock::time_point resting_until{};
  };
  std::vector<Turn> order(bool with_resting);
  State* find(const net::Url& url);

  std::mutex mutex_;
  std::vector<State> states_;
  std::size_t next_ = 0;
};

}  // namespace quire::proxy
