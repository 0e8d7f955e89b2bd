#pragma once
// Recurrent states: a block is one layer's state after some token, not a slice of tokens. Mode none
// keeps one running state (and one per draft), mode all one at every block boundary; modes align
// and adaptive keep the state where a step ends at a block boundary, and move the running state
// along. Of the states within an answer, adaptive keeps only the newest: the next turn goes on
// there.

#include <vector>

#include "engine/kv_cache/group_manager.h"

namespace quire {

class MambaGroup : public GroupManager {
 public:
  using GroupManager::GroupManager;
  int skipped_tokens(int computed) const override;
  int blocks_to_allocate(const GroupTable& table, const BlockNeed& need) const override;
  void allocate(GroupTable& table, int num_tokens, int num_tokens_main) override;
  void remove_skipped(GroupTable& table, int computed) override;
  void cache(const Request& request, GroupTable& table, int num_tokens,
             std::span<const std::uint8_t> keep) override;
  int quiet_until(const GroupTable& table) const override;
  void start_step() override { made_this_step_.clear(); }

 protected:
  int num_drafts() const { return config_.spec.num_speculative_blocks; }
  // The hit state is being computed in this very step.
  bool made_this_step(std::span<const BlockId> hits) const;

 private:
  std::vector<BlockHash> made_this_step_;
};

class MambaMovingGroup final : public MambaGroup {
 public:
  using MambaGroup::MambaGroup;
  int blocks_to_allocate(const GroupTable& table, const BlockNeed& need) const override;
  void allocate(GroupTable& table, int num_tokens, int num_tokens_main) override;
  void remove_skipped(GroupTable& table, int computed) override;
  int quiet_until(const GroupTable& table) const override;

 protected:
  void give_back(GroupTable& table, int index) override;
};

std::unique_ptr<GroupManager> make_mamba_group(const GroupConfig& config, int group,
                                               const KvLimits& limits, BlockPool& pool);

}  // namespace quire
