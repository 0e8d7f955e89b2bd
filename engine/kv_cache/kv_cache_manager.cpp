#include "engine/kv_cache/kv_cache_manager.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/error.h"
#include "engine/kv_plan/plan.h"

namespace quire {
namespace {

BlockPoolConfig pool_config(const KvCacheConfig& config) {
  BlockPoolConfig pool{
      config.num_blocks, config.enable_caching, config.events, config.hash_block_size, {}};
  for (const GroupConfig& group : config.groups) pool.block_sizes.push_back(group.spec.block_size);
  return pool;
}

KvLimits limits_of(const KvCacheConfig& config) {
  KvLimits limits;
  limits.max_model_len = config.max_model_len;
  limits.max_num_batched_tokens = config.max_num_batched_tokens;
  return limits;
}

// Where hits end only at multiples of the alignment, a window group needs to keep just the blocks
// that such an end can see. 0: all of them.
int blocks_seen_from_end(const GroupConfig& group, int alignment) {
  const KvSpec& spec = group.spec;
  if (!keeps_window(spec.kind)) return 0;
  const int seen = cdiv(spec.sliding_window - 1, spec.block_size);
  return seen < alignment / spec.block_size ? seen : 0;
}

}  // namespace

KvCacheConfig kv_cache_config(const KvPlan& plan, int max_num_batched_tokens, bool enable_caching,
                              bool use_eagle) {
  KvCacheConfig config;
  config.num_blocks = static_cast<int>(plan.num_blocks);
  config.max_model_len = static_cast<int>(plan.max_model_len);
  config.max_num_batched_tokens = max_num_batched_tokens;
  config.scheduler_block_size = plan.scheduler_block_size;
  config.hash_block_size = plan.hash_block_size;
  config.enable_caching = enable_caching;
  config.use_eagle = use_eagle;
  for (const KvGroup& group : plan.groups()) {
    config.groups.push_back({group.spec, group.is_eagle_group});
    config.groups.back().spec.block_size = group.block_size;
    config.groups.back().prompt_states_only = group.spec.num_speculative_blocks > 0;
    config.record_fresh_blocks |= keeps_state(group.spec.kind);
  }
  return config;
}

KvCacheManager::KvCacheManager(const KvCacheConfig& config, BlockTier* tier)
    : config_(config),
      tier_(config.enable_caching ? tier : nullptr),
      pool_(pool_config(config), tier_),
      hasher_(config.hash_block_size, config.hash_key.value_or(BlockHasher::random_key())),
      event_hasher_(config.hash_block_size, root_hash(config.event_seed)) {
  for (const GroupConfig& group : config.groups) {
    const int index = static_cast<int>(groups_.size());
    groups_.push_back(make_group_manager(group, index, limits_of(config), pool_));
    groups_.back()->record_fresh(config.record_fresh_blocks && keeps_all_tokens(group.spec.kind));
    keep_last_.push_back(blocks_seen_from_end(group, config.scheduler_block_size));
    has_state_groups_ |= keeps_state(group.spec.kind);
  }
  no_hit_.blocks.resize(groups_.size());
  if (config.enable_caching) {
    prefix_cache_.emplace(PrefixCacheConfig{config.groups, config.hash_block_size,
                                            config.scheduler_block_size, config.use_eagle},
                          pool_, tier_);
  }
}

KvCacheManager::~KvCacheManager() = default;

std::int64_t KvCacheManager::max_blocks(int num_tokens) const {
  std::int64_t total = 0;
  for (const auto& group : groups_) {
    const int all =
        cdiv(num_tokens, group->block_size()) + group->config().spec.num_speculative_blocks;
    total += std::min(all, group->max_blocks(num_tokens));
  }
  return total;
}

const PrefixHit& KvCacheManager::find_prefix(Request& request) {
  if (!prefix_cache_ || !request.sampling().reads_prefix_cache()) return no_hit_;
  const int max_length = request.num_tokens() - 1;
  hasher_.extend(request, max_length);
  const PrefixHit& hit = prefix_cache_->find(request, max_length);
  const bool is_all = hit.num_tokens > max_length - config_.scheduler_block_size;
  return tier_ == nullptr || is_all ? hit : find_behind(request, max_length);
}

// What comes back is in the pool before anything else happens: free blocks with a prefix, as any
// other hit. A damaged block makes the hit shorter, so it is looked for again.
const PrefixHit& KvCacheManager::find_behind(Request& request, int max_length) {
  constexpr int kMostTries = 4;
  const int here = prefix_cache_->find(request, max_length).num_tokens;
  for (int tries = 0; tries < kMostTries; ++tries) {
    const PrefixHit& hit = prefix_cache_->find_behind(request, max_length);
    if (hit.num_tokens <= here || !has_room(request, hit)) break;
    const int num_tokens = hit.num_tokens;
    if (!restore(request, hit)) continue;
    request.num_restored = num_tokens - here;
    break;
  }
  return prefix_cache_->find(request, max_length);
}

bool KvCacheManager::has_room(const Request& request, const PrefixHit& hit) const {
  SlotDemand demand;
  demand.hit = &hit;
  BlockNeed whole;
  whole.num_settled = hit.num_tokens;
  whole.num_tokens = whole.num_tokens_main = std::min(request.num_tokens(), config_.max_model_len);
  whole.admission_cap = true;
  return fits(nullptr, demand, whole);
}

// Blocks of the hit that are in the pool are held meanwhile, so that they are not taken for others.
bool KvCacheManager::restore(Request& request, const PrefixHit& hit) {
  if (config_.events) event_hasher_.extend(request, hit.num_tokens);
  std::vector<std::vector<BlockId>> tables = hit.blocks;
  for (auto& table : tables)
    for (BlockId& id : table)
      if (id != kBlockInTier) pool_.touch({&id, 1});
  bool is_whole = true;
  for (std::size_t g = 0; g < tables.size(); ++g) {
    const int block_size = groups_[g]->block_size(), group = static_cast<int>(g);
    const int per_block = block_size / config_.hash_block_size;
    for (int i = 0; i < static_cast<int>(tables[g].size()); ++i) {
      if (tables[g][i] != kBlockInTier) continue;
      tables[g][i] = kNullBlock;
      BlockId taken = kNullBlock;
      if (!is_whole || !pool_.allocate({&taken, 1})) {
        is_whole = false;
        continue;
      }
      const BlockContent content{
          .group = group,
          .hash = request.block_hashes[static_cast<std::size_t>(i + 1) * per_block - 1],
          .tokens = request.tokens().subspan(static_cast<std::size_t>(i) * block_size, block_size)};
      tables[g][i] = taken;
      is_whole = tier_->restore(content, taken);
      if (is_whole) pool_.cache(request, {tables[g], i, i + 1, group, {}});
    }
  }
  for (const auto& table : tables) pool_.free_reversed(table);
  return is_whole;
}

int KvCacheManager::open_sequence() {
  if (!free_sequences_.empty()) {
    const int index = free_sequences_.back();
    free_sequences_.pop_back();
    return index;
  }
  sequences_.push_back({std::vector<GroupTable>(groups_.size()), std::vector<int>(groups_.size())});
  quiet_until_.push_back(0);
  next_cached_.push_back(kQuietForEver);
  free_sequences_.reserve(sequences_.size());
  return static_cast<int>(sequences_.size()) - 1;
}

// With room for all that the request is expected to hold: decoding allocates nothing.
KvCacheManager::Sequence& KvCacheManager::sequence_of(Request& request) {
  if (request.kv_sequence >= 0) return sequences_[request.kv_sequence];
  request.kv_sequence = open_sequence();
  Sequence& sequence = sequences_[request.kv_sequence];
  const int num_tokens = request.expected_tokens(config_.max_model_len);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const int num_drafts = groups_[g]->config().spec.num_speculative_blocks;
    sequence.tables[g].num_prompt = request.num_prompt() / groups_[g]->block_size();
    sequence.tables[g].blocks.reserve(cdiv(num_tokens, groups_[g]->block_size()) + num_drafts + 1);
  }
  if (config_.enable_caching) {
    request.block_hashes.reserve(num_tokens / config_.hash_block_size);
  }
  return sequence;
}

bool KvCacheManager::fits(const Sequence* sequence, const SlotDemand& demand,
                          const BlockNeed& need) const {
  static const GroupTable kNothing;
  std::int64_t total = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    BlockNeed own = need;
    if (demand.hit != nullptr) own.hits = demand.hit->blocks[g];
    const GroupTable& table = sequence == nullptr ? kNothing : sequence->tables[g];
    total += groups_[g]->blocks_to_allocate(table, own);
  }
  return total <= pool_.num_free();
}

bool KvCacheManager::allocate_slowly(Request& request, const SlotDemand& demand) {
  if (demand.num_new == 0 && demand.num_external == 0) {
    throw Failure(ErrorCode::internal, "KV cache: slots for no tokens were asked for");
  }
  const int hit_tokens = demand.hit == nullptr ? 0 : demand.hit->num_tokens;
  const int total_computed =
      std::min(request.num_computed + hit_tokens + demand.num_external, config_.max_model_len);
  BlockNeed need;
  need.num_settled = total_computed - demand.num_unsettled;
  if (demand.num_external > 0) {  // loaded to its end, a prompt computes its last token again
    need.num_settled = std::min(need.num_settled, request.num_tokens() - 1);
  }
  Sequence* held = request.kv_sequence < 0 ? nullptr : &sequences_[request.kv_sequence];
  if (demand.whole_prompt_must_fit) {
    BlockNeed prompt = need;
    prompt.num_tokens = std::min(request.num_tokens(), config_.max_model_len);
    prompt.num_tokens_main = prompt.num_tokens;
    prompt.admission_cap = true;
    if (!fits(held, demand, prompt)) return false;
  }
  need.num_tokens_main = total_computed + demand.num_new;
  need.num_tokens = std::min(need.num_tokens_main + demand.num_lookahead, config_.max_model_len);
  if (held != nullptr) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      groups_[g]->remove_skipped(held->tables[g], need.num_settled);
    }
  }
  if (!fits(held, demand, need)) return false;

  Sequence& sequence = sequence_of(request);
  const PrefixHit& hit = demand.hit == nullptr ? no_hit_ : *demand.hit;
  any_new_ = false;
  // An encoder keeps nothing: then there are no tables.
  const bool fresh = !sequence.tables.empty() && !sequence.tables.front().admitted;
  if (fresh && (!hit.empty() || demand.num_external > 0)) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      groups_[g]->attach(sequence.tables[g], hit.blocks[g], need.num_settled);
    }
  }
  if (demand.num_external > 0) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      groups_[g]->allocate_external(sequence.tables[g], total_computed);
    }
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    GroupTable& table = sequence.tables[g];
    sequence.first_new[g] = static_cast<int>(table.blocks.size());
    groups_[g]->allocate(table, need.num_tokens, need.num_tokens_main);
    any_new_ |= static_cast<int>(table.blocks.size()) > sequence.first_new[g];
  }
  if (config_.enable_caching && !demand.delay_caching) {
    cache_groups(request, sequence, std::min(need.num_tokens_main, request.num_tokens()));
  }
  update_quiet(request.kv_sequence);
  return true;
}

void KvCacheManager::update_quiet(int index) {
  const int alignment = config_.scheduler_block_size;
  int quiet = kQuietForEver;
  int next_cached = kQuietForEver;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupTable& table = sequences_[index].tables[g];
    quiet = std::min(quiet, groups_[g]->quiet_until(table));
    const int cached = table.num_cached * groups_[g]->block_size();
    next_cached = std::min(next_cached, (cached / alignment + 1) * alignment);
  }
  next_cached_[index] = config_.enable_caching ? next_cached : kQuietForEver;
  quiet_until_[index] = quiet;
}

std::span<const std::uint8_t> KvCacheManager::keep_mask(int group, const GroupTable& table,
                                                        int num_tokens) {
  if (keep_last_[group] == 0) return {};
  const int block_size = groups_[group]->block_size();
  const int per_segment = config_.scheduler_block_size / block_size;
  mask_.clear();
  for (int i = table.num_cached; i < num_tokens / block_size; ++i) {
    mask_.push_back(i % per_segment >= per_segment - keep_last_[group]);
  }
  return mask_;
}

// Hits end at multiples of the scheduler's block size, so that is how far blocks are offered.
void KvCacheManager::cache_groups(Request& request, Sequence& sequence, int num_tokens) {
  const int aligned = num_tokens / config_.scheduler_block_size * config_.scheduler_block_size;
  hasher_.extend(request, aligned);
  if (config_.events) event_hasher_.extend(request, aligned);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    GroupTable& table = sequence.tables[g];
    groups_[g]->cache(request, table, aligned, keep_mask(static_cast<int>(g), table, aligned));
  }
}

void KvCacheManager::cache(Request& request, int num_tokens) {
  const int index = request.kv_sequence;
  if (index < 0 || num_tokens < next_cached_[index]) return;
  cache_groups(request, sequences_[index], num_tokens);
  update_quiet(index);
}

std::span<const BlockId> KvCacheManager::table(const Request& request, int group) const {
  if (request.kv_sequence < 0) return {};
  return sequences_[request.kv_sequence].tables[group].blocks;
}

std::span<const BlockId> KvCacheManager::new_blocks(const Request& request, int group) const {
  return table(request, group).subspan(sequences_[request.kv_sequence].first_new[group]);
}

int KvCacheManager::num_tokens_before(const Request& request, std::span<const BlockId> blocks,
                                      int num_tokens) const {
  for (int g = 0; g < num_groups(); ++g) {
    const int block_size = groups_[g]->block_size();
    const auto held = table(request, g);
    for (std::size_t i = 0; i < held.size() && static_cast<int>(i) * block_size < num_tokens; ++i) {
      if (std::find(blocks.begin(), blocks.end(), held[i]) == blocks.end()) continue;
      num_tokens = static_cast<int>(i) * block_size;
    }
  }
  return num_tokens;
}

bool KvCacheManager::rewind(Request& request, int num_tokens) {
  const int index = request.kv_sequence;
  bool readable = true;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    GroupTable& table = sequences_[index].tables[g];
    const int block_size = groups_[g]->block_size();
    const int kept = std::min(num_tokens / block_size, static_cast<int>(table.blocks.size()));
    pool_.evict(std::span(table.blocks).subspan(kept));
    table.num_cached = std::min(table.num_cached, kept);
    const int first_read = groups_[g]->skipped_tokens(num_tokens) / block_size;
    readable &= std::find(table.blocks.begin() + std::min(first_read, kept), table.blocks.end(),
                          kNullBlock) == table.blocks.end();
  }
  update_quiet(index);
  return readable;
}

void KvCacheManager::free(Request& request) {
  const int index = std::exchange(request.kv_sequence, -1);
  if (index < 0) return;
  Sequence& sequence = sequences_[index];
  for (std::size_t g = 0; g < groups_.size(); ++g) groups_[g]->free(sequence.tables[g]);
  free_sequences_.push_back(index);
}

void KvCacheManager::start_step() {
  for (const auto& group : groups_) group->start_step();
}

int KvCacheManager::num_common_prefix_blocks(const Request& request, int group) const {
  if (!config_.enable_caching || !keeps_all_tokens(groups_[group]->config().spec.kind)) return 0;
  const int holders = static_cast<int>(sequences_.size() - free_sequences_.size());
  const auto blocks = table(request, group);
  const auto shared = std::find_if(blocks.begin(), blocks.end(),
                                   [&](BlockId id) { return pool_.ref_count(id) != holders; });
  return static_cast<int>(shared - blocks.begin());
}

void KvCacheManager::take_fresh_blocks(std::vector<BlockId>& out) {
  for (const auto& group : groups_) {
    std::vector<BlockId>& fresh = group->fresh_blocks();
    out.insert(out.end(), fresh.begin(), fresh.end());
    fresh.clear();
  }
}

}  // namespace quire
