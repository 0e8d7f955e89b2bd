#pragma once
// Keys that open the API, and how many requests each has under way. Comparison time tells nothing
// about a key. Any thread.

#include <atomic>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/key_file.h"

namespace quire {

// One key, and who uses it.
class KeyInUse {
 public:
  explicit KeyInUse(NamedKey key) : key_(std::move(key)) {}
  const NamedKey& key() const { return key_; }

  // False: it has as many requests under way as it may.
  bool begin() {
    if (num_running_++ < key_.max_concurrency || key_.max_concurrency == 0) return true;
    --num_running_;
    return false;
  }
  void end() { --num_running_; }

 private:
  NamedKey key_;
  std::atomic<int> num_running_{0};
};

class Auth {
 public:
  explicit Auth(const std::vector<std::string>& keys, const std::vector<NamedKey>& named = {});

  bool is_open() const { return keys_.empty(); }  // no keys: everyone may
  // Of the Authorization header's value, or of a header that is the key alone. Null: none of them.
  KeyInUse* find(std::string_view authorization, std::string_view bare_key);
  bool allows(std::string_view authorization, std::string_view bare_key) {
    return is_open() || find(authorization, bare_key) != nullptr;
  }

 private:
  KeyInUse* find_key(std::string_view key);

  std::deque<KeyInUse> keys_;
};

}  // namespace quire
