#pragma once
// Behind the pool: blocks that it reuses stay in the host's memory, and what that has no room for on
// disk, the oldest first to go. What comes back is compared with its sum. Engine thread only.

#include <cstdint>
#include <memory>
#include <string>

#include "backend/device.h"
#include "engine/config.h"
#include "engine/kv_offload/block_pages.h"
#include "engine/kv_offload/disk_slots.h"
#include "engine/kv_offload/host_slots.h"
#include "engine/kv_plan/plan.h"
#include "engine/kv_transfer/pages/other_ranks.h"
#include "engine/request/engine_stats.h"

namespace quire {

// What start-up allocates for it: whole blocks, no more than KvOffloadConfig::host_bytes; those where
// the plan has no blocks yet. Throws Failure where not one fits.
Buffer offload_memory(const KvOffloadConfig& config, std::size_t slot_bytes, Device& device);

struct OffloadSetup {
  KvOffloadConfig config;
  EngineId engine;
  std::vector<LayerCache> layers;
  Buffer memory;
  OtherRanks* ranks = nullptr;  // of a divided model
  std::size_t slot_bytes = 0;   // KvPlan's pool_bytes_per_block, of all ranks
  int most_tokens = 0;         // of one block
  std::string fingerprint;     // of what decides a block's bytes; for the file
};

class KvOffload final : public BlockTier {
 public:
  // Throws Failure where the folder is of no use.
  KvOffload(Device& device, OffloadSetup setup);
  ~KvOffload() override;

  // That hashes must be made with, so that a file's are found; empty: any.
  std::optional<BlockHasher::Key> hash_key() const;

  void keep(BlockId block, const BlockContent& content) override;
  bool holds(const BlockContent& content) override;
  bool restore(const BlockContent& content, BlockId block) override;
  void clear() override;

  KvOffloadStats stats() const;
  void finish_writing();  // for tests: all that is on its way is on disk

 private:
  int take_slot();
  bool must_be_written(int slot) const;
  void write_behind();
  void take_written();
  bool restore_from_disk(const BlockContent& content, BlockId block);

  const std::unique_ptr<BlockPages> pages_;
  HostSlots host_;
  std::unique_ptr<DiskSlots> disk_;  // null: none
  KvOffloadStats stats_;
};

}  // namespace quire
