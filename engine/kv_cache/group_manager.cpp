#include "engine/kv_cache/group_manager.h"

#include <algorithm>
#include <cassert>

#include "engine/kv_cache/mamba_group.h"
#include "engine/kv_cache/window_group.h"

namespace quire {

bool keeps_all_tokens(KvKind kind) {
  return kind == KvKind::full || kind == KvKind::mla || kind == KvKind::hidden_state;
}

bool keeps_window(KvKind kind) {
  return kind == KvKind::sliding_window || kind == KvKind::sliding_window_mla;
}

bool keeps_state(KvKind kind) { return kind == KvKind::mamba; }

std::unique_ptr<GroupManager> make_group_manager(const GroupConfig& config, int group,
                                                 const KvLimits& limits, BlockPool& pool) {
  const KvKind kind = config.spec.kind;
  if (keeps_window(kind)) return std::make_unique<WindowGroup>(config, group, limits, pool);
  if (kind == KvKind::chunked_local) {
    return std::make_unique<ChunkedGroup>(config, group, limits, pool);
  }
  if (keeps_state(kind)) return make_mamba_group(config, group, limits, pool);
  assert(keeps_all_tokens(kind));
  return std::make_unique<GroupManager>(config, group, limits, pool);
}

GroupManager::GroupManager(const GroupConfig& config, int group, const KvLimits& limits,
                           BlockPool& pool)
    : config_(config),
      group_(group),
      limits_(limits),
      max_blocks_(static_cast<int>(max_blocks_per_request(config.spec, limits))),
      pool_(pool) {}

int GroupManager::max_blocks(int num_tokens) const {
  KvLimits limits = limits_;
  limits.max_model_len = std::min<std::int64_t>(num_tokens, limits.max_model_len);
  return static_cast<int>(max_blocks_per_request(config_.spec, limits));
}

int GroupManager::skipped_tokens(int) const { return 0; }

int GroupManager::free_hits(std::span<const BlockId> hits) const {
  const auto takes_one = [&](BlockId id) { return id == kBlockInTier || pool_.is_free(id); };
  return static_cast<int>(std::count_if(hits.begin(), hits.end(), takes_one));
}

int GroupManager::blocks_to_allocate(const GroupTable& table, const BlockNeed& need) const {
  int required = cdiv(need.num_tokens, block_size());
  const bool windowed =
      keeps_window(config_.spec.kind) || config_.spec.kind == KvKind::chunked_local;
  if (need.admission_cap && windowed) required = std::min(required, max_blocks_);
  const int held = static_cast<int>(table.blocks.size());
  if (table.admitted) return std::max(required - held, 0);
  const int skipped = skipped_tokens(need.num_settled) / block_size();
  const int hits = static_cast<int>(need.hits.size());
  const int skipped_hits = std::clamp(skipped - held, 0, hits);
  return std::max(required - std::max(skipped, hits + held), 0) +
         free_hits(need.hits.subspan(skipped_hits));
}

void GroupManager::append_new(GroupTable& table, int count) {
  if (count <= 0) return;
  const std::size_t held = table.blocks.size();
  table.blocks.resize(held + static_cast<std::size_t>(count));
  const auto fresh = std::span(table.blocks).subspan(held);
  [[maybe_unused]] const bool enough = pool_.allocate(fresh);
  assert(enough);  // the manager has counted
  if (record_fresh_) fresh_.insert(fresh_.end(), fresh.begin(), fresh.end());
}

void GroupManager::attach(GroupTable& table, std::span<const BlockId> hits, int num_settled) {
  assert(table.blocks.empty() && !table.admitted);
  const int skipped = skipped_tokens(num_settled) / block_size();
  const auto kept = hits.subspan(std::min<std::size_t>(skipped, hits.size()));
  pool_.touch(kept);
  table.blocks.assign(skipped, kNullBlock);
  table.num_skipped = skipped;
  table.blocks.insert(table.blocks.end(), kept.begin(), kept.end());
  table.num_cached = static_cast<int>(table.blocks.size());
  table.admitted = true;
}

void GroupManager::allocate_external(GroupTable& table, int num_tokens) {
  append_new(table, cdiv(num_tokens, block_size()) - static_cast<int>(table.blocks.size()));
}

void GroupManager::allocate(GroupTable& table, int num_tokens, int) {
  append_new(table, cdiv(num_tokens, block_size()) - static_cast<int>(table.blocks.size()));
}

void GroupManager::give_back(GroupTable& table, int index) {
  pool_.free({&table.blocks[index], 1});
  table.blocks[index] = kNullBlock;
}

// From the newest skipped block down to the first that left before.
void GroupManager::remove_skipped(GroupTable& table, int computed) {
  const int held = static_cast<int>(table.blocks.size());
  const int skipped = std::min(std::max(skipped_tokens(computed), 0) / block_size(), held);
  for (int i = skipped - 1; i >= 0 && table.blocks[i] != kNullBlock; --i) give_back(table, i);
  table.num_skipped = std::max(table.num_skipped, skipped);
}

int GroupManager::num_cached_after(const GroupTable& table, int num_tokens) const {
  return std::max(table.num_cached, num_tokens / block_size());
}

void GroupManager::cache(const Request& request, GroupTable& table, int num_tokens,
                         std::span<const std::uint8_t> keep) {
  const int num_full = num_cached_after(table, num_tokens);
  if (num_full == table.num_cached) return;
  pool_.cache(request, {table.blocks, table.num_cached, num_full, group_, keep});
  table.num_cached = num_full;
  table.admitted = true;
}

// The tail first: a prefix without its tail is still a hit.
void GroupManager::free(GroupTable& table) {
  pool_.free_reversed(table.blocks);
  table.blocks.clear();
  table = {.blocks = std::move(table.blocks)};
}

int GroupManager::quiet_until(const GroupTable& table) const {
  return static_cast<int>(table.blocks.size()) * block_size();
}

}  // namespace quire
