#include "engine/kv_cache/prefix_index.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <new>

namespace quire {
namespace {

// Untouched pages cost nothing, so every store has room for all blocks.
TokenId* reserve_tokens(std::size_t count) {
  constexpr std::size_t kLine = 64;
  const std::size_t bytes = (count * sizeof(TokenId) + kLine - 1) / kLine * kLine;
  void* memory = std::aligned_alloc(kLine, std::max(bytes, kLine));
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<TokenId*>(memory);
}

}  // namespace

PrefixIndex::PrefixIndex(int num_blocks, std::span<const int> block_sizes) : entries_(num_blocks) {
  const std::size_t capacity = std::bit_ceil(std::max<std::size_t>(2 * entries_.size(), 16));
  slots_.assign(capacity, {0, kNoBlock});
  shift_ = 32 - std::countr_zero(capacity);
  for (const int block_size : block_sizes) {
    const auto same = [&](const Store& store) { return store.block_size == block_size; };
    const auto found = std::find_if(stores_.begin(), stores_.end(), same);
    store_of_group_.push_back(static_cast<int>(found - stores_.begin()));
    if (found != stores_.end()) continue;
    Store store{block_size, {nullptr, &std::free}, {}, 0};
    store.tokens.reset(reserve_tokens(entries_.size() * static_cast<std::size_t>(block_size)));
    store.free.reserve(entries_.size());
    stores_.push_back(std::move(store));
  }
}

std::uint32_t PrefixIndex::tag_of(int group, const BlockHash& hash) {
  const std::uint64_t mixed =
      (hash.low ^ (static_cast<std::uint64_t>(group) << 56)) * 0x9E3779B97F4A7C15u;
  return static_cast<std::uint32_t>(mixed >> 32);
}

// The slot of the key, or the empty one where it would go.
std::size_t PrefixIndex::find_slot(std::uint32_t tag, int group, const BlockHash& hash) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = home(tag);; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.block == kNoBlock) return at;
    if (slot.tag != tag) continue;
    const Entry& entry = entries_[slot.block];
    if (entry.group == group && entry.hash == hash) return at;
  }
}

void PrefixIndex::insert(BlockId id, int group, const BlockHash& hash,
                         std::span<const TokenId> tokens) {
  assert(!holds(id));
  Store& store = this->store(group);
  assert(static_cast<int>(tokens.size()) == store.block_size);
  std::int32_t content = store.used;
  if (store.free.empty()) {
    ++store.used;
  } else {
    content = store.free.back();
    store.free.pop_back();
  }
  std::memcpy(&store.tokens[static_cast<std::size_t>(content) * store.block_size], tokens.data(),
              tokens.size_bytes());
  entries_[id] = {hash, group, content, id, id};
  ++size_;

  const std::uint32_t tag = tag_of(group, hash);
  Slot& slot = slots_[find_slot(tag, group, hash)];
  if (slot.block == kNoBlock) {
    slot = {tag, id};
    return;
  }
  Entry& first = entries_[slot.block];  // join the ring as its last
  entries_[id].next = slot.block;
  entries_[id].previous = first.previous;
  entries_[first.previous].next = id;
  first.previous = id;
}

void PrefixIndex::erase(BlockId id) {
  Entry& entry = entries_[id];
  assert(entry.group >= 0);
  store(entry.group).free.push_back(entry.content);
  const std::size_t slot = find_slot(tag_of(entry.group, entry.hash), entry.group, entry.hash);
  assert(slots_[slot].block != kNoBlock);
  if (entry.next == id) {
    erase_slot(slot);
  } else {
    if (slots_[slot].block == id) slots_[slot].block = entry.next;
    entries_[entry.next].previous = entry.previous;
    entries_[entry.previous].next = entry.next;
  }
  entry.group = -1;
  --size_;
}

// Closes the gap: slots behind it that may move up do, so that no probe ends too early.
void PrefixIndex::erase_slot(std::size_t gap) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = (gap + 1) & mask; slots_[at].block != kNoBlock; at = (at + 1) & mask) {
    const std::size_t distance_from_home = (at - home(slots_[at].tag)) & mask;
    if (distance_from_home < ((at - gap) & mask)) continue;
    slots_[gap] = slots_[at];
    gap = at;
  }
  slots_[gap].block = kNoBlock;
}

void PrefixIndex::clear() {
  std::fill(slots_.begin(), slots_.end(), Slot{0, kNoBlock});
  for (Entry& entry : entries_) entry.group = -1;
  for (Store& store : stores_) {
    store.free.clear();
    store.used = 0;
  }
  size_ = 0;
}

BlockId PrefixIndex::find(int group, const BlockHash& hash) const {
  return slots_[find_slot(tag_of(group, hash), group, hash)].block;
}

std::span<const TokenId> PrefixIndex::tokens_of(BlockId id) const {
  const Entry& entry = entries_[id];
  const Store& store = stores_[store_of_group_[entry.group]];
  return {&store.tokens[static_cast<std::size_t>(entry.content) * store.block_size],
          static_cast<std::size_t>(store.block_size)};
}

bool PrefixIndex::holds_tokens(const Entry& entry, std::span<const TokenId> tokens) const {
  const Store& store = stores_[store_of_group_[entry.group]];
  const TokenId* mine = &store.tokens[static_cast<std::size_t>(entry.content) * store.block_size];
  return std::memcmp(mine, tokens.data(), tokens.size_bytes()) == 0;
}

BlockId PrefixIndex::find(int group, const BlockHash& hash, std::span<const TokenId> tokens) const {
  const BlockId id = find(group, hash);
  return id != kNoBlock && holds_tokens(entries_[id], tokens) ? id : kNoBlock;
}

// Each lookup misses the cache three times, one after the other: slot, entry, tokens. So it goes in
// strides, and each pass over a stride fetches what the next one reads.
int PrefixIndex::match_run(int group, std::span<const BlockHash> hashes, int per_block,
                           std::span<const TokenId> tokens, std::span<BlockId> out) const {
  constexpr int kStride = 32;
  const Store& store = stores_[store_of_group_[group]];
  const auto block_size = static_cast<std::size_t>(store.block_size);
  const int count = static_cast<int>(out.size());
  const auto hash_of = [&](int i) -> const BlockHash& {
    return hashes[static_cast<std::size_t>(i + 1) * per_block - 1];
  };
  std::array<std::uint32_t, kStride> tags;
  for (int first = 0; first < count; first += kStride) {
    const int size = std::min(kStride, count - first);
    for (int i = 0; i < size; ++i) {
      tags[i] = tag_of(group, hash_of(first + i));
      __builtin_prefetch(&slots_[home(tags[i])]);
    }
    for (int i = 0; i < size; ++i) {
      const Slot& slot = slots_[home(tags[i])];
      if (slot.block != kNoBlock) __builtin_prefetch(&entries_[slot.block]);
    }
    int found = 0;
    for (; found < size; ++found) {
      const BlockHash& hash = hash_of(first + found);
      const BlockId id = slots_[find_slot(tags[found], group, hash)].block;
      if (id == kNoBlock) break;
      __builtin_prefetch(&store.tokens[entries_[id].content * block_size]);
      out[first + found] = id;
    }
    for (int i = 0; i < found; ++i) {
      const std::size_t begin = static_cast<std::size_t>(first + i) * block_size;
      if (!holds_tokens(entries_[out[first + i]], tokens.subspan(begin, block_size))) {
        return first + i;
      }
    }
    if (found < size) return first + found;
  }
  return count;
}

}  // namespace quire
