#include "engine/core/block_report.h"

#include <algorithm>

#include "engine/scheduler/scheduler.h"

namespace quire {
namespace {

// Of one block; numbers count from one, zero is none.
struct BlockUse {
  BlockState state = BlockState::free;
  std::int32_t group = 0, holder = 0;
};

class Census {
 public:
  Census(const KvCacheManager& kv) : kv_(kv), pool_(kv.pool()) {
    uses_.resize(static_cast<std::size_t>(pool_.num_usable()) + 1);
    report_.counts.resize(static_cast<std::size_t>(kv.num_groups()));
  }

  void add(const Request& request) {
    for (int group = 0; group < kv_.num_groups(); ++group) {
      BlockHolder holder{request.id(), group, request.num_computed, 0, 0};
      const bool listed = std::cmp_less(report_.requests.size(), kMostBlockHolders);
      for (const BlockId id : kv_.table(request, group)) {
        if (id == kNullBlock) continue;
        ++holder.blocks;
        if (pool_.ref_count(id) > 1) ++holder.shared;
        BlockUse& use = uses_[static_cast<std::size_t>(id)];
        use.group = group + 1;
        if (listed && use.holder == 0)
          use.holder = static_cast<std::int32_t>(report_.requests.size()) + 1;
      }
      if (listed && holder.blocks > 0) report_.requests.push_back(holder);
    }
  }

  BlockReport take() {
    const int num_blocks = report_.num_blocks = pool_.num_usable();
    const int per_cell = report_.blocks_per_cell = std::max(1, cdiv(num_blocks, kMostBlockCells));
    for (int first = 1; first <= num_blocks; first += per_cell) {
      BlockUse most;
      for (int id = first; id < first + per_cell && id <= num_blocks; ++id) {
        const BlockUse use = judge(id);
        if (id == first || use.state > most.state) most = use;
      }
      report_.states.push_back(static_cast<std::int32_t>(most.state));
      report_.groups.push_back(most.group);
      report_.holders.push_back(most.holder);
    }
    return std::move(report_);
  }

 private:
  BlockUse judge(BlockId id) {
    BlockUse use = uses_[static_cast<std::size_t>(id)];
    const int refs = pool_.ref_count(id);
    const bool is_known = pool_.index().holds(id);
    if (refs > 0) {
      use.state = refs > 1 ? BlockState::shared : BlockState::held;
    } else if (is_known) {
      use.state = BlockState::cached;
    }
    if (is_known) use.group = pool_.index().group_of(id) + 1;
    if (use.group == 0) return use;  // free, or held by nobody who is listed: on its way elsewhere
    BlockCounts& counts = report_.counts[static_cast<std::size_t>(use.group) - 1];
    counts.shared += use.state == BlockState::shared;
    counts.held += use.state == BlockState::held;
    counts.cached += use.state == BlockState::cached;
    return use;
  }

  const KvCacheManager& kv_;
  const BlockPool& pool_;
  std::vector<BlockUse> uses_;  // by block id
  BlockReport report_;
};

}  // namespace

BlockReport block_report(const KvCacheManager& kv, const Scheduler& scheduler) {
  Census census(kv);
  for (const Request* request : scheduler.running()) census.add(*request);
  const auto add = [&census](const Request& request) { census.add(request); };
  scheduler.waiting().for_each(add);
  scheduler.deferred().for_each(add);
  return census.take();
}

}  // namespace quire
