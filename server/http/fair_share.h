#pragma once
// Who holds how much of the room for sequences, so that nobody shuts all others out. Alone, a client
// may have all of it. Once another one was turned away, each gets only so much as leaves some free,
// for a while. Any thread.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace quire {

class FairShare {
 public:
  using Clock = std::chrono::steady_clock;

  // One sequence of a client, from its submission to its end.
  class Held {
   public:
    Held() = default;
    Held(FairShare& share, std::uint64_t client) : share_(&share), client_(client) {
      share.add(client, 1);
    }
    Held(Held&& other) noexcept
        : share_(std::exchange(other.share_, nullptr)), client_(other.client_) {}
    Held& operator=(Held&&) = delete;
    ~Held() {
      if (share_ != nullptr) share_->add(client_, -1);
    }

   private:
    FairShare* share_ = nullptr;
    std::uint64_t client_ = 0;
  };

  // Whether `client` may have `more` besides what it holds, with `free` of all places left. One that
  // may not holds much, while another holds less and found no room.
  bool allows(std::uint64_t client, std::int64_t more, std::int64_t free, Clock::time_point now) {
    const std::lock_guard guard(mutex_);
    if (now >= contended_until_ || client == turned_away_) return true;
    const auto found = held_.find(client);
    const std::int64_t held = found == held_.end() ? 0 : found->second;
    return held + more <= kTimesFree * free;
  }
  // `client` found no room.
  void turned_away(std::uint64_t client, Clock::time_point now) {
    const std::lock_guard guard(mutex_);
    std::int64_t most = 0;
    for (const auto& [other, held] : held_) {
      if (other != client) most = std::max(most, held);
    }
    const auto own = held_.find(client);
    if (most <= (own == held_.end() ? 0 : own->second)) return;  // it is the one that fills it
    contended_until_ = now + kMemory;
    turned_away_ = client;
  }

 private:
  static constexpr std::int64_t kTimesFree = 4;
  static constexpr std::chrono::seconds kMemory{30};

  void add(std::uint64_t client, std::int64_t count) {
    const std::lock_guard guard(mutex_);
    const auto at = held_.try_emplace(client, 0).first;
    if ((at->second += count) == 0) held_.erase(at);
  }

  std::mutex mutex_;
  std::map<std::uint64_t, std::int64_t> held_;
  Clock::time_point contended_until_{};
  std::uint64_t turned_away_ = 0;
};

}  // namespace quire
