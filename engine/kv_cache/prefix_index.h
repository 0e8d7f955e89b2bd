#pragma once
// Which blocks hold which prefixes: (group, hash) → blocks, in the order they were inserted, with
// the tokens that each holds, so that a hit is certain and not only likely. An open-addressing
// table with room for every block; nothing allocates after construction.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/request/request.h"

namespace quire {

class PrefixIndex {
 public:
  static constexpr BlockId kNoBlock = -1;

  // block_sizes: in tokens, of each group.
  PrefixIndex(int num_blocks, std::span<const int> block_sizes);

  bool holds(BlockId id) const { return entries_[id].group >= 0; }
  int group_of(BlockId id) const { return entries_[id].group; }
  const BlockHash& hash_of(BlockId id) const { return entries_[id].hash; }
  std::span<const TokenId> tokens_of(BlockId id) const;  // until it is erased
  int size() const { return size_; }
  void prefetch(BlockId id) const { __builtin_prefetch(&entries_[id]); }

  // tokens: those of the block alone. A block is in the index once.
  void insert(BlockId id, int group, const BlockHash& hash, std::span<const TokenId> tokens);
  void erase(BlockId id);
  void clear();

  // The first inserted block, whatever tokens it holds.
  BlockId find(int group, const BlockHash& hash) const;

  // The same, compared token by token.
  BlockId find(int group, const BlockHash& hash, std::span<const TokenId> tokens) const;

  // Blocks in a row from the first on that are there: writes their ids, returns how many. hashes
  // has `per_block` for each block, of which the last one counts; tokens follow each other.
  int match_run(int group, std::span<const BlockHash> hashes, int per_block,
                std::span<const TokenId> tokens, std::span<BlockId> out) const;

 private:
  struct Slot {
    std::uint32_t tag;
    BlockId block;  // kNoBlock: empty
  };
  struct Entry {
    BlockHash hash;
    std::int32_t group = -1;   // −1: not in the index
    std::int32_t content = 0;  // in its group's store
    // Blocks with the same key form a ring. The first inserted is the table's.
    BlockId next = kNoBlock;
    BlockId previous = kNoBlock;
  };
  // Tokens of blocks of one size.
  struct Store {
    int block_size = 0;
    std::unique_ptr<TokenId[], void (*)(void*)> tokens{nullptr,
                                                       nullptr};  // [num_blocks, block_size]
    std::vector<std::int32_t> free;
    std::int32_t used = 0;
  };

  static std::uint32_t tag_of(int group, const BlockHash& hash);
  std::size_t home(std::uint32_t tag) const { return (tag * 0x9E3779B1u) >> shift_; }
  std::size_t find_slot(std::uint32_t tag, int group, const BlockHash& hash) const;
  void erase_slot(std::size_t slot);
  Store& store(int group) { return stores_[store_of_group_[group]]; }
  bool holds_tokens(const Entry& entry, std::span<const TokenId> tokens) const;

  std::vector<Slot> slots_;
  int shift_;
  std::vector<Entry> entries_;  // by block id
  std::vector<Store> stores_;
  std::vector<int> store_of_group_;
  int size_ = 0;
};

}  // namespace quire
