#pragma once
// The scheduler's face of the KV cache: prefix hits, slots for the next tokens, block tables.
// Engine thread only.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/kv_cache/block_pool.h"
#include "engine/kv_cache/group_manager.h"
#include "engine/kv_cache/prefix_cache.h"
#include "engine/kv_hash/block_hash.h"
#include "engine/kv_hash/event_hash.h"
#include "engine/request/request.h"

namespace quire {

struct KvPlan;

struct KvCacheConfig {
  int num_blocks = 0;  // with the null block
  std::vector<GroupConfig> groups;
  int max_model_len = 0;           // tokens
  int max_num_batched_tokens = 0;  // per step
  int scheduler_block_size = 0;    // tokens: hits are multiples of it
  int hash_block_size = 0;         // tokens per hash
  int state_chunk = 1;             // tokens: steps of a prompt end at its multiples
  bool enable_caching = true;
  bool use_eagle = false;
  bool events = false;
  bool record_fresh_blocks = false;          // for take_fresh_blocks
  std::optional<BlockHasher::Key> hash_key;  // unset: random
  std::optional<std::string> event_seed;     // unset: random, see root_hash
};

KvCacheConfig kv_cache_config(const KvPlan& plan, int max_num_batched_tokens, bool enable_caching,
                              bool use_eagle);

// What a request wants slots for.
struct SlotDemand {
  int num_new = 0;                 // tokens to compute
  int num_lookahead = 0;           // slots beyond them, for drafts
  const PrefixHit* hit = nullptr;  // from find_prefix, for a request without blocks
  int num_external = 0;            // tokens that a connector brings
  int num_unsettled = 0;           // of the computed tokens, drafts that may yet be rejected
  bool delay_caching = false;      // their content comes later: see cache()
  bool whole_prompt_must_fit = false;
};

class KvCacheManager {
 public:
  // The tier (may be null) outlives the manager.
  explicit KvCacheManager(const KvCacheConfig& config, BlockTier* tier = nullptr);
  ~KvCacheManager();

  const KvCacheConfig& config() const { return config_; }
  const BlockPool& pool() const { return pool_; }
  int num_groups() const { return static_cast<int>(groups_.size()); }
  bool has_state_groups() const { return has_state_groups_; }
  bool has_tier() const { return tier_ != nullptr; }

  // Most blocks that a request of num_tokens can hold at a time; it can run alone if these are no
  // more than pool().num_usable().
  std::int64_t max_blocks(int num_tokens) const;

  // Cached tokens of the request, but never its last one: something must be computed to sample
  // from. Takes no references; valid until the next call. What the tier has beyond the pool is
  // brought back first where the whole request has room (Request::num_restored).
  const PrefixHit& find_prefix(Request& request);

  // Slots for its next tokens, or false. Even then blocks that left a window are given back.
  bool allocate(Request& request, const SlotDemand& demand) {
    if (!is_quiet(request, demand)) return allocate_slowly(request, demand);
    any_new_ = false;
    return true;
  }

  // What the last successful allocate appended to the request's table.
  std::span<const BlockId> new_blocks(const Request& request, int group) const;
  bool any_new_blocks() const { return any_new_; }

  // The request's blocks by group; empty without any.
  std::span<const BlockId> table(const Request& request, int group) const;

  // Makes the full blocks of its first num_tokens known, as allocate does unless told to delay.
  void cache(Request& request, int num_tokens);

  // How many of the request's first num_tokens come before any of these blocks.
  int num_tokens_before(const Request& request, std::span<const BlockId> blocks,
                        int num_tokens) const;

  // Forgets what the request's blocks hold beyond num_tokens; the blocks stay its own. False: what
  // the next token reads is no longer there, as its window has moved on.
  bool rewind(Request& request, int num_tokens);

  void free(Request& request);
  bool evict(std::span<const BlockId> ids) { return pool_.evict(ids); }
  bool reset_prefix_cache() { return pool_.reset(); }
  void start_step();

  // Leading blocks of the request that all requests with blocks share.
  int num_common_prefix_blocks(const Request& request, int group) const;

  // Appends blocks that full attention took since the last call.
  void take_fresh_blocks(std::vector<BlockId>& out);
  std::vector<KvEvent> take_events() { return pool_.take_events(); }

 private:
  struct Sequence {
    std::vector<GroupTable> tables;  // by group
    std::vector<int> first_new;      // by group: where the last allocation began
  };

  // Nothing to take, to give back or to cache: so it is for most rows of most steps.
  bool is_quiet(const Request& request, const SlotDemand& demand) const {
    const int index = request.kv_sequence;
    if (index < 0 || demand.hit != nullptr || demand.num_external > 0) return false;
    const int num_main = request.num_computed + demand.num_new;
    return num_main + demand.num_lookahead <= quiet_until_[index] &&
           std::min(num_main, request.num_tokens()) < next_cached_[index];
  }

  const PrefixHit& find_behind(Request& request, int max_length);
  bool has_room(const Request& request, const PrefixHit& hit) const;
  bool restore(Request& request, const PrefixHit& hit);
  int open_sequence();
  Sequence& sequence_of(Request& request);
  bool fits(const Sequence* sequence, const SlotDemand& demand, const BlockNeed& need) const;
  void cache_groups(Request& request, Sequence& sequence, int num_tokens);
  std::span<const std::uint8_t> keep_mask(int group, const GroupTable& table, int num_tokens);
  void update_quiet(int index);
  bool allocate_slowly(Request& request, const SlotDemand& demand);

  KvCacheConfig config_;
  BlockTier* const tier_;
  BlockPool pool_;
  std::vector<std::unique_ptr<GroupManager>> groups_;
  std::optional<PrefixCache> prefix_cache_;  // only with caching
  BlockHasher hasher_;
  EventHasher event_hasher_;
  PrefixHit no_hit_;
  bool has_state_groups_ = false;

  std::vector<Sequence> sequences_;        // by Request::kv_sequence
  std::vector<std::int32_t> quiet_until_;  // the same: least GroupManager::quiet_until
  std::vector<std::int32_t> next_cached_;  // the first number of tokens that fills blocks to cache
  std::vector<std::int32_t> free_sequences_;
  bool any_new_ = false;
  std::vector<int> keep_last_;  // by group: blocks of each aligned segment to cache; 0: all
  std::vector<std::uint8_t> mask_;
};

}  // namespace quire
