#include "proxy/servers.h"

#include <algorithm>

namespace quire::proxy {
namespace {

constexpr std::chrono::seconds kRest{5};

}  // namespace

std::vector<net::Url> Servers::in_turn() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::vector<net::Url> order, resting;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const State& state = states_[(next_ + i) % states_.size()];
    (state.resting_until > now ? resting : order).push_back(state.url);
  }
  ++next_;
  order.insert(order.end(), resting.begin(), resting.end());
  return order;
}

Servers::State* Servers::find(const net::Url& url) {
  const auto found = std::ranges::find_if(
      states_, [&](const State& state) { return state.url.text() == url.text(); });
  return found == states_.end() ? nullptr : &*found;
}

void Servers::failed(const net::Url& url) {
  const std::lock_guard lock(mutex_);
  if (State* state = find(url)) state->resting_until = Clock::now() + kRest;
}

void Servers::answered(const net::Url& url) {
  const std::lock_guard lock(mutex_);
  if (State* state = find(url)) state->resting_until = {};
}

}  // namespace quire::proxy
