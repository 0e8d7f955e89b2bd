#pragma once
// Keys that open the API, and how many requests each has under way. Comparison time tells nothing
// about a key. Any thread.

#include <algorithm>
#include <atomic>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/key_file.h"
#include "server/http/rate_limit.h"

namespace quire {

// One key, and who uses it.
class KeyInUse {
 public:
  explicit KeyInUse(NamedKey key)
      : key_(std::move(key)),
        requests_(key_.requests_per_minute),
        tokens_(key_.tokens_per_minute) {}
  const NamedKey& key() const { return key_; }

  // False: it has as many requests under way as it may.
  bool begin() {
    if (num_running_++ < key_.max_concurrency || key_.max_concurrency == 0) return true;
    --num_running_;
    return false;
  }
  void end() { --num_running_; }

  // 0: one more request may begin, and counts. Otherwise seconds until it may.
  int take_turn(RateLimit::Clock::time_point now) {
    const int wait = std::max(requests_.wait(now), tokens_.wait(now));
    if (wait == 0) requests_.spend(1, now);
    return wait;
  }
  void spend_tokens(std::int64_t count) { tokens_.spend(count, RateLimit::Clock::now()); }

 private:
  NamedKey key_;
  std::atomic<int> num_running_{0};
  RateLimit requests_, tokens_;
};

class Auth {
 public:
  explicit Auth(const std::vector<std::string>& keys, const std::vector<NamedKey>& named = {});

  bool is_open() const { return keys_.empty(); }  // no keys: everyone may
  // Finds the key in an Authorization header's value, or in a header that has it alone; or null.
  KeyInUse* find(std::string_view authorization, std::string_view bare_key);
  bool allows(std::string_view authorization, std::string_view bare_key) {
    return is_open() || find(authorization, bare_key) != nullptr;
  }

 private:
  KeyInUse* find_key(std::string_view key);

  std::deque<KeyInUse> keys_;
};

}  // namespace quire
