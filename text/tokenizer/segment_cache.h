#pragma once
// The tokens of texts that were encoded lately, found by the whole text: the system prompt and the
// earlier messages of a conversation come again with every turn. Bounded in bytes; what was used
// longest ago gives way. Any thread.

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace quire {

class SegmentCache {
 public:
  static constexpr std::size_t kMaxBytes = 4 << 20;
  static constexpr std::size_t kMinText = 64;  // bytes; shorter ones are cut as fast as found

  explicit SegmentCache(std::size_t max_bytes = kMaxBytes) : max_bytes_(max_bytes) {}

  // Appends the tokens of the text; false: they are not known. `starts_input`: it is the beginning
  // of a whole input, which some tokenizers treat in a way of its own.
  bool append(std::string_view text, bool starts_input, std::vector<TokenId>& ids);
  // A text that is most of the cache alone is not kept.
  void put(std::string_view text, bool starts_input, std::span<const TokenId> ids);

  std::size_t bytes() const;  // of what is kept, with what it takes to find it

 private:
  struct Segment {
    std::string text;
    bool starts_input;
    std::vector<TokenId> ids;

    std::size_t bytes() const;
  };
  // By use, the latest first. Shared with who copies out of it meanwhile.
  using Order = std::list<std::pair<std::uint64_t, std::shared_ptr<const Segment>>>;

  void drop(Order::iterator place);

  const std::size_t max_bytes_;
  mutable std::mutex mutex_;
  Order order_;
  std::unordered_map<std::uint64_t, Order::iterator> places_;  // by hash; of equal ones the later
  std::size_t bytes_ = 0;
};

}  // namespace quire
