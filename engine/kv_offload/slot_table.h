#pragma once
// Which slots of a tier hold which blocks, and in what order they were used. One thread.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/kv_cache/block_tier.h"
#include "engine/kv_cache/free_list.h"

namespace quire {

class SlotTable {
 public:
  static constexpr int kNone = -1;

  // most_tokens: of one block.
  SlotTable(int num_slots, int most_tokens);

  int num_slots() const { return static_cast<int>(slots_.size()); }
  int num_held() const { return static_cast<int>(by_key_.size()); }

  // Compared token by token.
  int find(const BlockContent& content) const;
  bool is_held(int slot) const { return slots_[slot].group >= 0; }
  BlockContent content_of(int slot) const;  // valid until the slot changes
  std::uint64_t sum_of(int slot) const { return slots_[slot].sum; }
  void set_sum(int slot, std::uint64_t sum) { slots_[slot].sum = sum; }

  // It becomes the newest. What the slot or another one held under the same hash is forgotten.
  void put(int slot, const BlockContent& content, std::uint64_t sum);
  void touch(int slot);
  // It becomes the oldest.
  void forget(int slot);
  // Is not used again before clear().
  void retire(int slot);
  void clear();  // the first slots are used first again: a file grows no more than it must

  // Oldest first; ends with kNone.
  int oldest() const { return order_.front(); }
  int after(int slot) const { return order_.after(slot); }

 private:
  struct Slot {
    BlockHash hash = {};
    int group = -1;  // −1: it holds nothing
    int num_tokens = 0;
    std::uint64_t sum = 0;
  };
  struct Key {
    BlockHash hash;
    int group;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Mix {
    std::size_t operator()(const Key& key) const {
      return key.hash.low ^ (static_cast<std::uint64_t>(key.group) << 56);
    }
  };
  void drop_content(int slot);
  std::span<TokenId> tokens_of(int slot) {
    return std::span(tokens_).subspan(static_cast<std::size_t>(slot) * most_tokens_, most_tokens_);
  }

  const std::size_t most_tokens_;
  std::vector<Slot> slots_;
  std::vector<TokenId> tokens_;  // [slot, most_tokens]
  std::unordered_map<Key, int, Mix> by_key_;
  FreeList order_;
};

}  // namespace quire
