#pragma once
// The tokens of words seen lately: a table of fixed size where a newer word takes an older one's
// place. Belongs to one thread at a time.

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer/string_map.h"
#include "text/tokenizer/token_model.h"

namespace quire {

// A word of at most 32 bytes, padded with zeros: hashed and compared as four numbers.
struct WordKey {
  static constexpr std::size_t kMaxSize = 32;

  std::array<std::uint64_t, 4> parts{};

  // A part of `text`. Reads past its end, not past the end of `text`.
  void assign(std::string_view text, Piece word) {
    const std::size_t size = word.end - word.begin;
    const char* const begin = text.data() + word.begin;
    parts = {};
    if (word.begin + kMaxSize > text.size()) {
      std::memcpy(parts.data(), begin, size);
      return;
    }
    parts[0] = first_bytes(begin, size);
    if (size > 8) parts[1] = first_bytes(begin + 8, size - 8);
    if (size > 16) parts[2] = first_bytes(begin + 16, size - 16);
    if (size > 24) parts[3] = first_bytes(begin + 24, size - 24);
  }
  std::uint64_t hash() const {
    return mix_bits(mix_bits(parts[0], parts[1]), parts[2] ^ (parts[3] << 1));
  }
  bool operator==(const WordKey& other) const {
    std::uint64_t difference = 0;
    for (std::size_t i = 0; i < 4; ++i) difference |= parts[i] ^ other.parts[i];
    return difference == 0;
  }

 private:
  static std::uint64_t first_bytes(const char* from, std::size_t count) {
    std::uint64_t bytes;
    std::memcpy(&bytes, from, 8);
    return count < 8 ? bytes & ((std::uint64_t{1} << (8 * count)) - 1) : bytes;
  }
};

class WordCache {
 public:
  static constexpr std::size_t kMaxIds = 7;  // words of more tokens are not kept

  struct alignas(64) Entry {
    WordKey key;
    std::uint8_t size = 0;  // 0: empty
    std::uint8_t num_ids = 0;
    std::array<TokenId, kMaxIds> ids{};

    bool holds(const WordKey& word, std::size_t word_size) const {
      return size == word_size && key == word;
    }
    void put(const WordKey& word, std::size_t word_size, std::span<const TokenId> word_ids) {
      if (word_ids.size() > kMaxIds) return;
      key = word;
      size = static_cast<std::uint8_t>(word_size);
      num_ids = static_cast<std::uint8_t>(word_ids.size());
      std::copy(word_ids.begin(), word_ids.end(), ids.begin());
    }
    void append_to(std::vector<TokenId>& out) const {
      for (std::size_t i = 0; i < num_ids; ++i) out.push_back(ids[i]);
    }
  };

  WordCache() : entries_(kEntries) {}

  // The place of a word, whether it holds it or not.
  Entry& place_of(const WordKey& word) { return entries_[word.hash() & (kEntries - 1)]; }

 private:
  static constexpr std::size_t kEntries = 1 << 14;  // 1 MiB
  std::vector<Entry> entries_;
};

}  // namespace quire
