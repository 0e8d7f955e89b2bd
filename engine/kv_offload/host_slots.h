#pragma once
// Blocks in the host's memory. What a device copies into a slot arrives later: until then the slot
// has no sum. Engine thread only; a slot that is being written elsewhere is not taken.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/device.h"
#include "engine/kv_offload/block_pages.h"
#include "engine/kv_offload/slot_table.h"

namespace quire {

class HostSlots {
 public:
  // As many as the memory holds.
  HostSlots(BlockPages& pages, Buffer memory, std::size_t slot_bytes, int most_tokens);

  SlotTable& table() { return table_; }
  const SlotTable& table() const { return table_; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  std::span<std::byte> bytes(int slot, int group);

  // Out of the cache.
  void fill(int slot, BlockId block, const BlockContent& content);
  // Into the cache. False: the bytes are not those that were kept.
  bool copy_back(int slot, BlockId block);

  // Sums what has arrived; all of it: waits for it.
  void settle(bool all);
  bool is_settled(int slot) const;
  // Before the host itself writes into a slot.
  void wait_for_device();

  bool is_pinned(int slot) const { return pinned_[static_cast<std::size_t>(slot)] != 0; }
  void pin(int slot, bool on) { pinned_[static_cast<std::size_t>(slot)] = on ? 1 : 0; }

 private:
  void sum(int slot);

  BlockPages& pages_;
  Buffer memory_;
  const std::size_t slot_bytes_;
  SlotTable table_;
  std::vector<std::uint8_t> pinned_;
  const bool is_immediate_;  // copies are done when they return
  std::unique_ptr<Event> arrival_;
  std::vector<int> awaited_, later_;  // slots without a sum: before arrival_, behind it
};

}  // namespace quire
