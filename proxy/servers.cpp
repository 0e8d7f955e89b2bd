#include "proxy/servers.h"

#include <algorithm>

namespace quire::proxy {
namespace {

constexpr std::chrono::seconds kRest{5};

// The first by turns; behind it the others by turns too, so that what one refuses is shared.
void spread(std::vector<Turn>& turns, std::size_t turn) {
  const std::size_t size = turns.size();
  if (size < 2) return;
  std::ranges::rotate(turns, turns.begin() + static_cast<std::ptrdiff_t>(turn % size));
  const auto second = turns.begin() + 1;
  std::rotate(second, second + static_cast<std::ptrdiff_t>(turn / size % (size - 1)), turns.end());
}

}  // namespace

std::vector<Turn> Servers::awake() { return order(false); }

std::vector<Turn> Servers::all() { return order(true); }

std::vector<Turn> Servers::order(bool with_resting) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::vector<Turn> rested, sound, resting;
  for (State& state : states_) {
    if (!state.has_failed) {
      sound.push_back({state.url});
    } else if (state.resting_until > now) {
      resting.push_back({state.url, true});
    } else {
      rested.push_back({state.url, true});
      state.resting_until = now + kRest;  // to all others, while this one asks it
    }
  }
  spread(sound, next_);
  spread(resting, next_);
  ++next_;
  rested.insert(rested.end(), sound.begin(), sound.end());
  if (with_resting) rested.insert(rested.end(), resting.begin(), resting.end());
  return rested;
}

Servers::State* Servers::find(const net::Url& url) {
  const auto found = std::ranges::find_if(
      states_, [&](const State& state) { return state.url.text() == url.text(); });
  return found == states_.end() ? nullptr : &*found;
}

bool Servers::is_resting(const net::Url& url) {
  const std::lock_guard lock(mutex_);
  const State* state = find(url);
  return state != nullptr && state->has_failed && state->resting_until > Clock::now();
}

void Servers::failed(const net::Url& url) {
  const std::lock_guard lock(mutex_);
  if (State* state = find(url)) {
    state->has_failed = true;
    state->resting_until = Clock::now() + kRest;
  }
}

void Servers::answered(const net::Url& url) {
  const std::lock_guard lock(mutex_);
  if (State* state = find(url)) state->has_failed = false;
}

}  // namespace quire::proxy
