#pragma once
// The longest prefix of a request that every group still has. Each kind looks for hits in its own
// way; what they agree on is the hit.

#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/kv_cache/block_pool.h"
#include "engine/kv_cache/group_manager.h"
#include "engine/request/request.h"

namespace quire {

struct PrefixHit {
  int num_tokens = 0;
  int num_shared = 0;  // tokens that full attention has, were it alone; only states need to know
  // By group; kNullBlock: hit, but not needed.
  std::vector<std::vector<BlockId>> blocks;

  bool empty() const { return num_tokens == 0; }
};

struct PrefixCacheConfig {
  std::vector<GroupConfig> groups;
  int hash_block_size = 0;  // tokens
  int alignment = 0;        // tokens: hits are multiples of it
  bool use_eagle = false;   // without a flagged group, all are
};

class PrefixCache {
 public:
  // The tier may be null.
  PrefixCache(const PrefixCacheConfig& config, const BlockPool& pool, BlockTier* tier = nullptr);

  // At most max_length tokens; the request's hashes reach that far. Valid until the next call.
  const PrefixHit& find(const Request& request, int max_length);
  // The same of pool and tier together: kBlockInTier are those that have to be brought back.
  const PrefixHit& find_behind(const Request& request, int max_length);

 private:
  // Groups that look for hits alike are looked up together: a block counts where all have it.
  struct Family {
    GroupConfig config;
    std::vector<int> groups;
    bool drops_last = false;  // Eagle
  };
  using Hits = std::vector<std::vector<BlockId>>;

  void search(const Family& family, const Request& request, int max_length, bool drop_last);
  void search_full(const Family& family, const Request& request, int num_blocks);
  void search_window(const Family& family, const Request& request, int num_blocks, bool drop_last);
  void search_chunk(const Family& family, const Request& request, int max_length);
  void search_state(const Family& family, const Request& request, int num_blocks);

  BlockId locate(int group, const BlockHash& hash, std::span<const TokenId> tokens) const;
  bool find_block(const Family& family, const Request& request, int block);
  int length(const Family& family) const;  // tokens
  void truncate(const Family& family, int num_blocks);
  void truncate_to_alignment(const Family& family);

  PrefixCacheConfig config_;
  const BlockPool& pool_;
  BlockTier* const tier_;
  bool looks_behind_ = false;  // in this search
  std::vector<Family> families_;  // full attention first
  PrefixHit hit_;
  std::vector<BlockId> found_;  // one block of each group of a family
  std::vector<bool> dropped_;   // by family, in this search
};

}  // namespace quire
