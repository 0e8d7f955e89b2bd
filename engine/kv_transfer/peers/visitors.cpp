#include "engine/kv_transfer/peers/visitors.h"

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <utility>

namespace quire {
namespace {

constexpr std::chrono::milliseconds kUntilGone{1}, kPauseWhenFull{50};

}  // namespace

Visitors::Visit::Visit(Visitors& visitors, std::function<void()> hang_up,
                       std::function<bool()> is_idle)
    : visitors_(visitors),
      hang_up_(std::move(hang_up)),
      is_idle_(std::move(is_idle)),
      place_(visitors.all_.insert(visitors.all_.end(), this)) {}

Visitors::Visit::~Visit() { visitors_.all_.erase(place_); }

void Visitors::Visit::was_of_use() {
  was_of_use_ = true;
  visitors_.all_.splice(visitors_.all_.end(), visitors_.all_, place_);
}

awaitable<void> Visitors::make_place() {
  while (all_.size() >= most_) {
    const std::chrono::nanoseconds pause = send_one_away() ? kUntilGone : kPauseWhenFull;
    co_await sleep_for(pause);
  }
}

// False: all of them do something.
bool Visitors::send_one_away() {
  if (std::ranges::any_of(all_, &Visit::is_leaving_)) return true;
  const auto idle = [](const Visit* visit) { return visit->is_idle_(); };
  auto found = std::ranges::find_if(
      all_, [&](const Visit* visit) { return !visit->was_of_use_ && idle(visit); });
  if (found == all_.end()) found = std::ranges::find_if(all_, idle);
  if (found == all_.end()) return false;
  (*found)->is_leaving_ = true;
  (*found)->hang_up_();
  return true;
}

}  // namespace quire
