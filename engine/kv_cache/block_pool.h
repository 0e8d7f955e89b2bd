#pragma once
// The blocks: who is free and in what order they are reused, how many requests hold each, and which
// hold a prefix that later requests can share. A free block keeps its prefix until it is reused.

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/kv_cache/block_tier.h"
#include "engine/kv_cache/free_list.h"
#include "engine/kv_cache/prefix_index.h"
#include "engine/kv_events/events.h"
#include "engine/request/request.h"

namespace quire {

inline constexpr BlockId kNullBlock = 0;
// Among the blocks of a hit: not in the pool, but behind it.
inline constexpr BlockId kBlockInTier = -2;

struct BlockPoolConfig {
  int num_blocks = 0;  // with the null block
  bool enable_caching = true;
  bool events = false;
  int hash_block_size = 0;       // tokens per hash of a request
  std::vector<int> block_sizes;  // tokens, by group
};

// Blocks [first, last) of a request's table in one group; null blocks and those masked out stay
// uncached.
struct CacheRange {
  std::span<const BlockId> table;
  int first = 0;
  int last = 0;
  int group = 0;
  std::span<const std::uint8_t> mask;  // from `first` on; empty: all
};

class BlockPool {
 public:
  // The tier (may be null) outlives the pool.
  explicit BlockPool(const BlockPoolConfig& config, BlockTier* tier = nullptr);

  int num_usable() const { return static_cast<int>(refs_.size()) - 1; }
  int num_free() const { return free_.size(); }
  double usage() const { return num_usable() == 0 ? 0 : 1 - double(num_free()) / num_usable(); }
  int ref_count(BlockId id) const { return refs_[id]; }
  bool is_free(BlockId id) const { return free_.holds(id); }
  bool enable_caching() const { return config_.enable_caching; }
  const PrefixIndex& index() const { return index_; }
  const FreeList& free_list() const { return free_; }

  // The oldest free blocks, one reference each. False, and nothing happens, when there are too few.
  [[nodiscard]] bool allocate(std::span<BlockId> out);

  // One more holder; null blocks are passed over.
  void touch(std::span<const BlockId> ids);

  // One holder less. Blocks without holders become free in this order. Throws Failure where a block
  // has none already.
  void free(std::span<const BlockId> ids);
  void free_reversed(std::span<const BlockId> ids);
  // For a free block whose prefix nobody will ask for again: it forgets it and is reused first.
  void discard(BlockId id);

  // Makes full blocks known to later requests.
  void cache(const Request& request, const CacheRange& range);

  // Forgets the prefixes of these blocks, whoever holds them. False: an id is out of range.
  bool evict(std::span<const BlockId> ids);

  // Forgets all prefixes, those of the tier too; false while a block is held.
  bool reset();

  // Since the last call.
  std::vector<KvEvent> take_events();

 private:
  void release(BlockId id);
  void forget(BlockId id);
  void give_to_tier(BlockId id);
  void record_stored(const Request& request, const CacheRange& range,
                     std::span<const BlockId> stored, std::span<const int> indices);
  EventHash event_hash(const Request& request, int block, int per_block) const;

  BlockPoolConfig config_;
  BlockTier* const tier_;
  FreeList free_;
  std::vector<std::int32_t> refs_;  // by block id
  PrefixIndex index_;
  std::vector<EventHash> event_hashes_;  // by block id; empty without events
  std::vector<KvEvent> events_;
};

}  // namespace quire
