#pragma once
// Blocks in a file: what is where, what is on its way there. Engine thread only; the writing is done
// beside it.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/kv_offload/disk_file.h"
#include "engine/kv_offload/disk_writer.h"
#include "engine/kv_offload/slot_table.h"

namespace quire {

class DiskSlots {
 public:
  // Takes what the file has from an earlier start. Throws Failure as DiskFile does.
  explicit DiskSlots(const DiskFileOptions& options);

  BlockHasher::Key hash_key() const { return file_.hash_key(); }
  const SlotTable& table() const { return table_; }
  // No more is written, until clear(); what is there can be read.
  bool is_full() const { return is_full_; }
  bool holds(const BlockContent& content) const { return table_.find(content) != SlotTable::kNone; }
  void touch(const BlockContent& content);

  // The pages stay as they are until take_written() names the slot. False: the disk is full.
  bool write(int host_slot, const BlockContent& content, std::span<const std::byte> pages,
             std::uint64_t sum);
  struct Written {
    int host_slot = 0;
    std::int64_t bytes = 0;  // 0: it failed
  };
  std::vector<Written> take_written();
  void finish() { writer_.finish(); }

  // The sum of what was read; empty: it is not what was written, and is forgotten.
  std::optional<std::uint64_t> read(const BlockContent& content, std::span<std::byte> pages);
  void clear();  // nothing is on its way

 private:
  DiskFile file_;
  SlotTable table_;
  std::vector<std::uint64_t> stamps_;   // by slot
  std::vector<std::uint8_t> is_taken_;  // by slot: is being written
  std::uint64_t next_stamp_ = 1;
  bool is_full_ = false;
  DiskWriter writer_;  // last: it uses the file
};

}  // namespace quire
