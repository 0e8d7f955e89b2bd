#pragma once
// Maps from strings and from pairs of ids to numbers, for tables of some 100,000 entries that are
// built once and read often: open addressing, linear probing, at most half full.

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace quire {

inline std::uint64_t mix_bits(std::uint64_t a, std::uint64_t b) {
  const auto product =
      static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD1B54A32D192ED03u);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t hash_bytes(const char* data, std::size_t size) {
  std::uint64_t hash = size;
  for (; size > 8; data += 8, size -= 8) {
    std::uint64_t word;
    std::memcpy(&word, data, 8);
    hash = mix_bits(hash, word);
  }
  std::uint64_t word = 0;
  std::memcpy(&word, data, size);
  return mix_bits(hash, word);
}

// The strings themselves belong to the caller and must stay where they are.
class StringMap {
 public:
  explicit StringMap(std::size_t expected = 0) { slots_.resize(std::bit_ceil(2 * expected + 2)); }

  // The last value given for a key stays.
  void assign(std::string_view key, std::int32_t value) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[find_slot(key, hash_bytes(key.data(), key.size()))];
    if (slot.value < 0) ++size_;
    slot = {key.data(), static_cast<std::uint32_t>(key.size()), value};
  }

  // -1: not there.
  std::int32_t find(std::string_view key) const {
    return slots_[find_slot(key, hash_bytes(key.data(), key.size()))].value;
  }

  std::size_t size() const { return size_; }

 private:
  struct Slot {
    const char* data = nullptr;
    std::uint32_t size = 0;
    std::int32_t value = -1;
  };

  std::size_t find_slot(std::string_view key, std::uint64_t hash) const {
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].value >= 0 && std::string_view(slots_[at].data, slots_[at].size) != key) {
      at = (at + 1) & (slots_.size() - 1);
    }
    return at;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.value < 0) continue;
      const std::string_view key(slot.data, slot.size);
      slots_[find_slot(key, hash_bytes(key.data(), key.size()))] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

// What two neighbouring tokens merge to.
struct MergeRule {
  std::uint32_t rank = UINT32_MAX;  // UINT32_MAX: they do not
  std::int32_t id = -1;
};

class MergeMap {
 public:
  explicit MergeMap(std::size_t expected = 0) { slots_.resize(std::bit_ceil(2 * expected + 2)); }

  // No more than `expected` different pairs. The last rule given for a pair stays.
  void assign(std::int32_t left, std::int32_t right, MergeRule rule) {
    slots_[find_slot(key_of(left, right))] = {key_of(left, right), rule};
  }

  MergeRule find(std::int32_t left, std::int32_t right) const {
    return slots_[find_slot(key_of(left, right))].rule;
  }

 private:
  static constexpr std::uint64_t kEmpty = UINT64_MAX;
  struct Slot {
    std::uint64_t key = kEmpty;
    MergeRule rule;
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }

  std::size_t find_slot(std::uint64_t key) const {
    std::size_t at = mix_bits(key, key) & (slots_.size() - 1);
    while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<Slot> slots_;
};

}  // namespace quire
