#pragma once
// The blocks that requests hold in one group: how many they need, which ones leave the window,
// which are offered to later requests. The base class is the rule of full attention; windows and
// recurrent states override what differs.

#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/kv_cache/block_pool.h"
#include "model/kv_spec.h"

namespace quire {

struct GroupConfig {
  KvSpec spec;
  bool is_eagle_group = false;  // its layers' last hit block is computed again, for the draft model
  // States beside drafts: within an answer none is that of a block's end, so only the prompt's are
  // offered to later requests.
  bool prompt_states_only = false;
};

// One request's blocks in one group.
struct GroupTable {
  std::vector<BlockId> blocks;  // kNullBlock: not kept
  int num_cached = 0;           // leading blocks that were offered to the index
  int num_skipped = 0;          // leading blocks that nobody will read
  bool admitted = false;        // hits were attached or blocks cached: no hits can come any more
  int num_prompt = 0;           // blocks that the prompt fills
  // State modes align and adaptive
  bool has_state = false;    // a running state was allocated
  int previous_state = -1;   // index of the block that held the state two allocations ago
  BlockId left_state = 0;    // adaptive: the newest state within the answer, given back; 0: none
  BlockHash left_hash = {};  // what it stood for then
};

struct BlockNeed {
  int num_tokens = 0;       // slots, lookahead included
  int num_tokens_main = 0;  // without lookahead
  int num_settled = 0;      // computed tokens, hits included, that will not be taken back
  std::span<const BlockId> hits;
  bool admission_cap = false;  // count no more than one request can hold at a time
};

// Never reached: token counts are int.
inline constexpr int kQuietForEver = std::numeric_limits<int>::max();

class GroupManager {
 public:
  GroupManager(const GroupConfig& config, int group, const KvLimits& limits, BlockPool& pool);
  virtual ~GroupManager() = default;
  GroupManager(const GroupManager&) = delete;
  GroupManager& operator=(const GroupManager&) = delete;

  const GroupConfig& config() const { return config_; }
  int block_size() const { return config_.spec.block_size; }
  int group() const { return group_; }
  // Most blocks of one request at a time.
  int max_blocks() const { return max_blocks_; }
  // The same, for a request that never has more than num_tokens.
  int max_blocks(int num_tokens) const;

  // Tokens at the front that nobody will read once `computed` are there.
  virtual int skipped_tokens(int computed) const;

  // Blocks to take from the free list: new ones, and hits that nobody else holds.
  virtual int blocks_to_allocate(const GroupTable& table, const BlockNeed& need) const;

  // Takes hits. All groups do before any of them takes new blocks, which may be another's hits.
  void attach(GroupTable& table, std::span<const BlockId> hits, int num_settled);
  // Blocks for what a connector brings, up to num_tokens.
  void allocate_external(GroupTable& table, int num_tokens);
  virtual void allocate(GroupTable& table, int num_tokens, int num_tokens_main);

  // Gives back blocks that left the window.
  virtual void remove_skipped(GroupTable& table, int computed);

  // Offers full blocks of the first num_tokens to later requests. keep: see keep_mask.
  virtual void cache(const Request& request, GroupTable& table, int num_tokens,
                     std::span<const std::uint8_t> keep);
  void free(GroupTable& table);

  // While a request's slots stay at or below this many tokens, allocate and remove_skipped have
  // nothing to do.
  virtual int quiet_until(const GroupTable& table) const;

  // Recurrent states made in this step cannot be read in it.
  virtual void start_step() {}

  // Freshly allocated blocks that must be zeroed where a model has recurrent states too.
  std::vector<BlockId>& fresh_blocks() { return fresh_; }
  void record_fresh(bool on) { record_fresh_ = on; }

 protected:
  // Of the table's block at index, which nobody will read in this request.
  virtual void give_back(GroupTable& table, int index);
  void append_new(GroupTable& table, int count);
  int free_hits(std::span<const BlockId> hits) const;  // that take a block from the free list
  int num_cached_after(const GroupTable& table, int num_tokens) const;

  GroupConfig config_;
  int group_;
  KvLimits limits_;
  int max_blocks_;
  BlockPool& pool_;

 private:
  bool record_fresh_ = false;
  std::vector<BlockId> fresh_;
};

std::unique_ptr<GroupManager> make_group_manager(const GroupConfig& config, int group,
                                                 const KvLimits& limits, BlockPool& pool);

inline int cdiv(int a, int b) { return (a + b - 1) / b; }
bool keeps_all_tokens(KvKind kind);  // full attention in its forms
bool keeps_window(KvKind kind);
bool keeps_state(KvKind kind);

}  // namespace quire
