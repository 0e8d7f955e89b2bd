#pragma once
// The tokens of words seen lately: a table of fixed size where a newer word takes an older one's
// place. Belongs to one thread at a time.

#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/string_map.h"

namespace quire {

class WordCache {
 public:
  static constexpr std::size_t kMaxWord = 30;  // bytes; longer words are not kept
  static constexpr std::size_t kMaxIds = 8;

  struct alignas(64) Entry {
    std::uint8_t size = 0;  // 0: empty
    std::uint8_t num_ids = 0;
    std::array<char, kMaxWord> word{};
    std::array<TokenId, kMaxIds> ids{};
  };

  WordCache() : entries_(kEntries) {}

  // The place of a word of at most kMaxWord bytes, whether it holds it or not.
  Entry& place_of(std::string_view word) {
    return entries_[hash_bytes(word.data(), word.size()) & (kEntries - 1)];
  }
  static bool holds(const Entry& entry, std::string_view word) {
    return entry.size == word.size() &&
           std::memcmp(entry.word.data(), word.data(), word.size()) == 0;
  }
  static void put(Entry& entry, std::string_view word, std::span<const TokenId> ids) {
    if (ids.size() > kMaxIds) return;
    entry.size = static_cast<std::uint8_t>(word.size());
    entry.num_ids = static_cast<std::uint8_t>(ids.size());
    std::memcpy(entry.word.data(), word.data(), word.size());
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
  }

 private:
  static constexpr std::size_t kEntries = 1 << 14;  // 1 MiB
  std::vector<Entry> entries_;
};

}  // namespace quire
