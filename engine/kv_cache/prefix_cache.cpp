#include "engine/kv_cache/prefix_cache.h"

#include <algorithm>

#include "base/error.h"

namespace quire {
namespace {

bool look_alike(const KvSpec& a, const KvSpec& b) {
  const auto rule = [](KvKind kind) {
    return keeps_all_tokens(kind) ? 0 : keeps_window(kind) ? 1 : static_cast<int>(kind) + 2;
  };
  if (a.block_size != b.block_size || rule(a.kind) != rule(b.kind)) return false;
  if (keeps_window(a.kind)) return a.sliding_window == b.sliding_window;
  return a.kind != KvKind::chunked_local || a.attention_chunk_size == b.attention_chunk_size;
}

}  // namespace

PrefixCache::PrefixCache(const PrefixCacheConfig& config, const BlockPool& pool, BlockTier* tier)
    : config_(config), pool_(pool), tier_(tier) {
  const bool any_flagged = std::any_of(config.groups.begin(), config.groups.end(),
                                       [](const GroupConfig& g) { return g.is_eagle_group; });
  for (std::size_t i = 0; i < config.groups.size(); ++i) {
    const GroupConfig& group = config.groups[i];
    const auto alike = [&](const Family& f) { return look_alike(f.config.spec, group.spec); };
    auto family = std::find_if(families_.begin(), families_.end(), alike);
    if (family == families_.end()) family = families_.insert(family, Family{group, {}, false});
    family->groups.push_back(static_cast<int>(i));
    // A state is either there or not: there is no last block to drop.
    family->drops_last |=
        config.use_eagle && !keeps_state(group.spec.kind) && (group.is_eagle_group || !any_flagged);
  }
  for (const Family& family : families_) {
    // A shorter prefix may lie in an earlier chunk, whose blocks were passed over.
    const bool cut = family.drops_last || family.config.spec.block_size != config.alignment;
    if (family.config.spec.kind == KvKind::chunked_local && cut) {
      throw Failure(ErrorCode::unsupported,
                    "prefix caching: chunked attention goes neither with other block sizes nor "
                    "with a draft model that drops the last block");
    }
  }
  std::stable_partition(families_.begin(), families_.end(),
                        [](const Family& f) { return keeps_all_tokens(f.config.spec.kind); });
  hit_.blocks.resize(config.groups.size());
  found_.resize(config.groups.size());
}

int PrefixCache::length(const Family& family) const {
  const auto blocks = hit_.blocks[family.groups.front()].size();
  return static_cast<int>(blocks) * family.config.spec.block_size;
}

void PrefixCache::truncate(const Family& family, int num_blocks) {
  for (const int group : family.groups) {
    auto& blocks = hit_.blocks[group];
    if (static_cast<int>(blocks.size()) > num_blocks) blocks.resize(num_blocks);
  }
}

void PrefixCache::truncate_to_alignment(const Family& family) {
  const int aligned = length(family) / config_.alignment * config_.alignment;
  truncate(family, aligned / family.config.spec.block_size);
}

// Rounds, until no family wants less than the others. Every family but full attention is searched
// again in each round; full attention holds for every shorter prefix too.
const PrefixHit& PrefixCache::find(const Request& request, int max_length) {
  hit_.num_tokens = hit_.num_shared = 0;
  for (auto& blocks : hit_.blocks) blocks.clear();
  dropped_.assign(families_.size(), false);
  int agreed = max_length;
  // Full attention follows whatever one other family wants.
  const bool one_round =
      families_.size() == 1 ||
      (families_.size() == 2 && keeps_all_tokens(families_.front().config.spec.kind));
  for (bool first_round = true;; first_round = false) {
    int current = agreed;
    for (std::size_t i = 0; i < families_.size(); ++i) {
      const Family& family = families_[i];
      const int block_size = family.config.spec.block_size;
      if (!first_round && keeps_all_tokens(family.config.spec.kind)) {
        current = current / block_size * block_size;
        continue;
      }
      const bool drop = family.drops_last && !dropped_[i];
      const int limit = drop ? std::min(current + block_size, max_length) : current;
      search(family, request, limit, drop);
      const int found = length(family);
      if (found < current) dropped_.assign(families_.size(), false);
      if (drop) dropped_[i] = true;
      current = std::min(current, found);
      if (first_round && keeps_all_tokens(family.config.spec.kind)) {
        hit_.num_shared = current / config_.alignment * config_.alignment;
      }
    }
    if (current >= agreed) break;
    agreed = current;
    if (agreed == 0 || one_round) break;
  }
  hit_.num_tokens = agreed / config_.alignment * config_.alignment;
  for (const Family& family : families_) {
    truncate(family, hit_.num_tokens / family.config.spec.block_size);
  }
  return hit_;
}

void PrefixCache::search(const Family& family, const Request& request, int max_length,
                         bool drop_last) {
  for (const int group : family.groups) hit_.blocks[group].clear();
  const KvSpec& spec = family.config.spec;
  const int num_blocks = max_length / spec.block_size;
  if (keeps_window(spec.kind)) return search_window(family, request, num_blocks, drop_last);
  if (keeps_state(spec.kind)) return search_state(family, request, num_blocks);
  if (spec.kind == KvKind::chunked_local) {
    search_chunk(family, request, max_length);
  } else {
    search_full(family, request, num_blocks);
  }
  if (drop_last && length(family) > 0) truncate(family, length(family) / spec.block_size - 1);
  truncate_to_alignment(family);
}

const PrefixHit& PrefixCache::find_behind(const Request& request, int max_length) {
  looks_behind_ = tier_ != nullptr;
  find(request, max_length);
  looks_behind_ = false;
  return hit_;
}

BlockId PrefixCache::locate(int group, const BlockHash& hash,
                            std::span<const TokenId> tokens) const {
  const BlockId here = pool_.index().find(group, hash, tokens);
  if (here != PrefixIndex::kNoBlock || !looks_behind_) return here;
  return tier_->holds({.group = group, .hash = hash, .tokens = tokens}) ? kBlockInTier
                                                                        : PrefixIndex::kNoBlock;
}

bool PrefixCache::find_block(const Family& family, const Request& request, int block) {
  const int block_size = family.config.spec.block_size;
  const int per_block = block_size / config_.hash_block_size;
  const BlockHash& hash = request.block_hashes[static_cast<std::size_t>(block + 1) * per_block - 1];
  const auto tokens =
      request.tokens().subspan(static_cast<std::size_t>(block) * block_size, block_size);
  for (const int group : family.groups) {
    found_[group] = locate(group, hash, tokens);
    if (found_[group] == PrefixIndex::kNoBlock) return false;
  }
  return true;
}

// From the left until one is missing in one of the groups.
void PrefixCache::search_full(const Family& family, const Request& request, int num_blocks) {
  const int block_size = family.config.spec.block_size;
  const int per_block = block_size / config_.hash_block_size;
  for (const int group : family.groups) {
    auto& blocks = hit_.blocks[group];
    blocks.resize(num_blocks);
    int found =
        pool_.index().match_run(group, request.block_hashes, per_block, request.tokens(), blocks);
    for (; looks_behind_ && found < num_blocks; ++found) {
      const auto last = static_cast<std::size_t>(found + 1) * per_block - 1;
      blocks[found] = locate(
          group, request.block_hashes[last],
          request.tokens().subspan(static_cast<std::size_t>(found) * block_size, block_size));
      if (blocks[found] == PrefixIndex::kNoBlock) break;
    }
    num_blocks = found;
  }
  truncate(family, num_blocks);
}

// From the right, for a run that covers the window and ends where hits may end. A shorter run
// counts if it starts at the prompt's start.
void PrefixCache::search_window(const Family& family, const Request& request, int num_blocks,
                                bool drop_last) {
  const KvSpec& spec = family.config.spec;
  const int extra = drop_last ? 1 : 0;
  const int wanted = cdiv(spec.sliding_window - 1, spec.block_size) + extra;
  for (const int group : family.groups) hit_.blocks[group].assign(num_blocks, kNullBlock);
  int run = 0;
  int start = num_blocks;
  while (start > 0 && (run == 0 || run < wanted)) {
    --start;
    if (!find_block(family, request, start)) {
      run = 0;
      continue;
    }
    const int end = (start + 1 - extra) * spec.block_size;
    if (run == 0 && end % config_.alignment != 0) continue;
    for (const int group : family.groups) hit_.blocks[group][start] = found_[group];
    ++run;
  }
  truncate(family, run == 0 ? 0 : start + run);
  if (drop_last && run > 0) truncate(family, start + run - 1);
  truncate_to_alignment(family);
}

// Earlier chunks are never read, so they hit whether they are there or not.
void PrefixCache::search_chunk(const Family& family, const Request& request, int max_length) {
  const KvSpec& spec = family.config.spec;
  const int num_blocks = max_length / spec.block_size;
  const int chunk_start = max_length / spec.attention_chunk_size * spec.attention_chunk_size;
  int block = chunk_start / spec.block_size;
  for (const int group : family.groups) hit_.blocks[group].assign(block, kNullBlock);
  for (; block < num_blocks && find_block(family, request, block); ++block) {
    for (const int group : family.groups) hit_.blocks[group].push_back(found_[group]);
  }
}

// The newest state at a place where hits may end.
void PrefixCache::search_state(const Family& family, const Request& request, int num_blocks) {
  const int block_size = family.config.spec.block_size;
  for (int block = num_blocks - 1; block >= 0; --block) {
    if ((block + 1) * block_size % config_.alignment != 0) continue;
    if (!find_block(family, request, block)) continue;
    for (const int group : family.groups) {
      hit_.blocks[group].assign(block, kNullBlock);
      hit_.blocks[group].push_back(found_[group]);
    }
    return;
  }
}

}  // namespace quire
