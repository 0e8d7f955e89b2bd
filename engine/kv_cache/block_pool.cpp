#include "engine/kv_cache/block_pool.h"

#include <cassert>
#include <string>
#include <utility>

#include "base/error.h"

namespace quire {

BlockPool::BlockPool(const BlockPoolConfig& config, BlockTier* tier)
    : config_(config),
      tier_(tier),
      free_(config.num_blocks),
      refs_(config.num_blocks),
      index_(config.num_blocks, config.enable_caching ? config.block_sizes : std::vector<int>{}) {
  assert(config.num_blocks > 0);
  free_.remove(kNullBlock);
  if (config.events) event_hashes_.resize(config.num_blocks);
}

bool BlockPool::allocate(std::span<BlockId> out) {
  if (static_cast<int>(out.size()) > free_.size()) return false;
  for (BlockId& id : out) {
    id = free_.pop_front();
    if (index_.holds(id)) {
      if (tier_ != nullptr) give_to_tier(id);
      forget(id);
    }
    refs_[id] = 1;
  }
  if (const BlockId next = free_.front(); next != FreeList::kNoBlock) {  // for the next allocation
    __builtin_prefetch(&refs_[next]);
    free_.prefetch(next);
    index_.prefetch(next);
  }
  return true;
}

void BlockPool::touch(std::span<const BlockId> ids) {
  for (const BlockId id : ids) {
    if (id == kNullBlock) continue;
    if (refs_[id]++ == 0) free_.remove(id);
  }
}

void BlockPool::release(BlockId id) {
  if (id == kNullBlock) return;
  if (refs_[id] == 0) {
    throw Failure(ErrorCode::internal, "block " + std::to_string(id) + " was freed twice");
  }
  if (--refs_[id] == 0) free_.push_back(id);
}

void BlockPool::free(std::span<const BlockId> ids) {
  for (const BlockId id : ids) release(id);
}

void BlockPool::free_reversed(std::span<const BlockId> ids) {
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) release(*id);
}

void BlockPool::discard(BlockId id) {
  [[maybe_unused]] const bool was_free = free_.remove(id);
  assert(was_free);
  if (index_.holds(id)) forget(id);
  free_.push_front(id);
}

void BlockPool::give_to_tier(BlockId id) {
  tier_->keep(id, {.group = index_.group_of(id),
                   .hash = index_.hash_of(id),
                   .tokens = index_.tokens_of(id)});
}

void BlockPool::forget(BlockId id) {
  const int group = index_.group_of(id);
  index_.erase(id);
  if (config_.events) {
    events_.emplace_back(BlockRemoved{std::exchange(event_hashes_[id], {}), group});
  }
}

void BlockPool::cache(const Request& request, const CacheRange& range) {
  const int block_size = config_.block_sizes[range.group];
  const int per_block = block_size / config_.hash_block_size;
  std::vector<BlockId> stored;  // stays empty without events
  std::vector<int> indices;
  for (int i = range.first; i < range.last; ++i) {
    const BlockId id = range.table[i];
    if (id == kNullBlock) continue;
    if (!range.mask.empty() && range.mask[i - range.first] == 0) continue;
    const std::size_t begin = static_cast<std::size_t>(i) * block_size;
    index_.insert(id, range.group,
                  request.block_hashes[static_cast<std::size_t>(i + 1) * per_block - 1],
                  request.tokens().subspan(begin, block_size));
    if (!config_.events) continue;
    stored.push_back(id);
    indices.push_back(i);
  }
  if (config_.events) record_stored(request, range, stored, indices);
}

EventHash BlockPool::event_hash(const Request& request, int block, int per_block) const {
  const auto first = request.event_hashes.begin() + static_cast<std::ptrdiff_t>(block) * per_block;
  return {first, first + per_block};
}

void BlockPool::record_stored(const Request& request, const CacheRange& range,
                              std::span<const BlockId> stored, std::span<const int> indices) {
  const int block_size = config_.block_sizes[range.group];
  const int per_block = block_size / config_.hash_block_size;
  BlockStored event;
  event.block_size = block_size;
  event.group = range.group;
  event.lora_id = request.lora_id();
  event.lora_name = request.lora_name();
  if (range.first > 0) event.parent = event_hash(request, range.first - 1, per_block);
  const auto tokens =
      request.tokens().subspan(static_cast<std::size_t>(range.first) * block_size,
                               static_cast<std::size_t>(range.last - range.first) * block_size);
  event.token_ids.assign(tokens.begin(), tokens.end());
  int next_item = 0;
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const int start = indices[i] * block_size;
    event_hashes_[stored[i]] = event_hash(request, indices[i], per_block);
    event.hashes.push_back(event_hashes_[stored[i]]);
    event.extra_keys.push_back(
        extra_keys(extra_key_inputs(request), start, start + block_size, next_item));
  }
  events_.emplace_back(std::move(event));
}

bool BlockPool::evict(std::span<const BlockId> ids) {
  for (const BlockId id : ids) {
    if (id < 0 || id >= static_cast<BlockId>(refs_.size())) return false;
  }
  for (const BlockId id : ids) {
    if (index_.holds(id)) forget(id);
  }
  return true;
}

bool BlockPool::reset() {
  if (num_free() != num_usable()) return false;
  index_.clear();
  if (tier_ != nullptr) tier_->clear();
  if (config_.events) {
    for (EventHash& hash : event_hashes_) hash.clear();
    events_.emplace_back(AllBlocksCleared{});
  }
  return true;
}

std::vector<KvEvent> BlockPool::take_events() { return std::exchange(events_, {}); }

}  // namespace quire
