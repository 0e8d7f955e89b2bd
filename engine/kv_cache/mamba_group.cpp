#include "engine/kv_cache/mamba_group.h"

#include <algorithm>
#include <utility>

namespace quire {

std::unique_ptr<GroupManager> make_mamba_group(const GroupConfig& config, int group,
                                               const KvLimits& limits, BlockPool& pool) {
  KvLimits own = limits;
  own.state_cache_mode = config.spec.state_cache_mode;
  if (moves_state(config.spec.state_cache_mode)) {
    return std::make_unique<MambaMovingGroup>(config, group, own, pool);
  }
  return std::make_unique<MambaGroup>(config, group, own, pool);
}

int MambaGroup::skipped_tokens(int computed) const { return std::max(0, computed - 1); }

bool MambaGroup::made_this_step(std::span<const BlockId> hits) const {
  if (hits.empty() || hits.back() == kBlockInTier || made_this_step_.empty()) return false;
  const BlockHash& hash = pool_.index().hash_of(hits.back());
  return std::find(made_this_step_.begin(), made_this_step_.end(), hash) != made_this_step_.end();
}

// More than there are blocks: the request has to wait for the next step.
int MambaGroup::blocks_to_allocate(const GroupTable& table, const BlockNeed& need) const {
  if (made_this_step(need.hits)) return pool_.num_usable() + 2;
  BlockNeed with_drafts = need;
  with_drafts.num_tokens += block_size() * num_drafts();
  return GroupManager::blocks_to_allocate(table, with_drafts);
}

void MambaGroup::allocate(GroupTable& table, int num_tokens, int num_tokens_main) {
  GroupManager::allocate(table, num_tokens + block_size() * num_drafts(), num_tokens_main);
}

// A rejected draft's state may have to be read again.
void MambaGroup::remove_skipped(GroupTable& table, int computed) {
  GroupManager::remove_skipped(table, std::max(0, computed - num_drafts()));
}

void MambaGroup::cache(const Request& request, GroupTable& table, int num_tokens,
                       std::span<const std::uint8_t> keep) {
  const int before = table.num_cached;
  if (config_.prompt_states_only)
    num_tokens = std::min(num_tokens, table.num_prompt * block_size());
  GroupManager::cache(request, table, num_tokens, keep);
  for (int i = before; i < table.num_cached; ++i) {
    const BlockId id = table.blocks[i];
    if (id != kNullBlock) made_this_step_.push_back(pool_.index().hash_of(id));
  }
}

// The block of the newest state leaves one boundary later than a window's would.
int MambaGroup::quiet_until(const GroupTable& table) const {
  const int drafts = block_size() * num_drafts();
  const int quiet = GroupManager::quiet_until(table) - drafts;
  return std::min(quiet, (table.num_skipped + 1) * block_size());
}

int MambaMovingGroup::blocks_to_allocate(const GroupTable& table, const BlockNeed& need) const {
  if (made_this_step(need.hits)) return pool_.num_usable() + 2;
  const int required = cdiv(need.num_tokens_main, block_size()) + num_drafts();
  const int held = static_cast<int>(table.blocks.size() + need.hits.size());
  const int in_hits = free_hits(need.hits);
  // vLLM lets this go negative after rejected drafts; here a longer row needs nothing.
  if (required <= held) return in_hits;
  return in_hits + (table.has_state ? 1 : 1 + num_drafts());
}

// The row: … null, [previous state], running state, one block per draft. The running state moves on
// by whole blocks; blocks of drafts move with it, so that a step needs at most one new block.
void MambaMovingGroup::allocate(GroupTable& table, int, int num_tokens_main) {
  std::vector<BlockId>& row = table.blocks;
  const int required = cdiv(num_tokens_main, block_size()) + num_drafts();
  const int held = static_cast<int>(row.size());
  if (required <= held) return;
  if (table.has_state) {
    table.previous_state = held - 1 - num_drafts();
  } else if (held > 0) {
    table.previous_state = held - 1;
  }
  const int running = required - num_drafts() - 1;
  if (held < running) row.resize(running, kNullBlock);
  if (table.has_state) {
    for (int i = held - num_drafts(); i < held && i < running; ++i) {
      row.push_back(row[i]);
      row[i] = kNullBlock;
    }
  }
  append_new(table, required - static_cast<int>(row.size()));
  table.has_state = true;
}

void MambaMovingGroup::remove_skipped(GroupTable& table, int computed) {
  MambaGroup::remove_skipped(table, computed);
  const int settled = std::max(0, computed - num_drafts());
  const int previous = table.previous_state;
  if (previous < 0 || previous >= cdiv(settled, block_size()) - 1) return;
  if (table.blocks[previous] != kNullBlock) give_back(table, previous);
}

// A newer state within the answer supersedes the one before, unless that is in use again.
void MambaMovingGroup::give_back(GroupTable& table, int index) {
  const BlockId id = table.blocks[index];
  MambaGroup::give_back(table, index);
  const PrefixIndex& known = pool_.index();
  if (config_.spec.state_cache_mode != StateCacheMode::adaptive) return;
  if (index < table.num_prompt || !known.holds(id)) return;
  const BlockId left = std::exchange(table.left_state, id);
  const BlockHash hash = std::exchange(table.left_hash, known.hash_of(id));
  const bool is_same =
      left != kNullBlock && pool_.is_free(left) && known.holds(left) && known.hash_of(left) == hash;
  if (is_same) pool_.discard(left);
}

// Within the running state's block nothing moves, except that an earlier state may leave.
int MambaMovingGroup::quiet_until(const GroupTable& table) const {
  const int running = static_cast<int>(table.blocks.size()) - num_drafts() - 1;
  if (running < 0) return 0;
  for (int i = 0; i < running; ++i) {
    if (table.blocks[i] != kNullBlock) return 0;
  }
  return (running + 1) * block_size();
}

}  // namespace quire
