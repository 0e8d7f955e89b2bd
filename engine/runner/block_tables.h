#pragma once
// Block tables of the attention groups. They live on the device, one row per slot; the host counts
// what they hold and stages what is appended, so that a step sends only the difference. Engine
// thread only. After construction nothing is allocated.

#include <cstdint>
#include <span>
#include <vector>

#include "backend/ops.h"
#include "backend/staged_pack.h"
#include "base/ids.h"

namespace quire {

struct TableGeometry {
  int block_size = 0;         // tokens
  int kernel_block_size = 0;  // tokens; divides block_size
  int max_blocks = 0;         // of one request

  int ratio() const { return block_size / kernel_block_size; }
  int columns() const { return max_blocks * ratio(); }  // kernel blocks
};

struct TableLimits {
  int max_slots = 0;   // and rows of a step, beside one that may pad it
  int max_tokens = 0;  // of a step
};

// Tokens of a sequence that this rank holds.
int local_seq_len(int seq_len, const ContextParallel& cp);

class BlockTables {
 public:
  // Throws Failure where a kernel block size does not divide its block size.
  BlockTables(Device& device, Ops& ops, std::vector<TableGeometry> groups,
              const TableLimits& limits, ContextParallel cp = {});

  int num_groups() const { return static_cast<int>(groups_.size()); }
  const TableGeometry& geometry(int group) const { return groups_[group].geometry; }

  void clear(int slot);  // all groups; not after an append that is not staged yet
  // Throws Failure where the table would overflow.
  void append(int slot, int group, std::span<const BlockId> blocks);
  int num_kernel_blocks(int group, int slot) const { return groups_[group].counts[slot]; }

  // What stage() may add to a pack.
  std::size_t max_staged_bytes() const;
  // Everything appended since the last call becomes part of the pack, and after its upload is
  // written into the tables.
  void stage(StagedPack& pack);
  // Arrays for so many writes of so many blocks in all, of another rank's tables: they are filled
  // with what that rank staged.
  void stage(StagedPack& pack, int num_writes, int num_blocks);
  // Writes that the latest stage() left for write().
  int num_writes() const { return static_cast<int>(writes_.slot.extent(0)); }
  int num_written_blocks() const { return static_cast<int>(writes_.blocks.extent(0)); }
  void write(StreamRef stream);

  // The tables of a step's rows, and where its tokens go; counts as num_kernel_blocks() has them.
  void gather(const TableRows& rows, StreamRef stream);
  void map_slots(const TableRows& rows, int num_tokens, StreamRef stream);
  TensorView rows(int group, int num_rows) const;     // i32 [num_rows, columns]
  TensorView slots(int group, int num_tokens) const;  // i64 [num_tokens]

 private:
  struct Group {
    TableGeometry geometry;
    std::vector<std::int32_t> counts;  // [max_slots]: kernel blocks in use
    Buffer table, rows, slots;         // as in TableGroup
  };
  struct Staged {
    std::vector<std::int32_t> group, slot, column, first, blocks;
  };

  Ops& ops_;
  const TableLimits limits_;
  const ContextParallel cp_;
  std::vector<Group> groups_;
  std::vector<TableGroup> on_device_;  // by group
  struct StagedArrays {
    StagedPack::Array<std::int32_t> group, slot, column, first, blocks;
  };
  static StagedArrays add_arrays(StagedPack& pack, std::size_t writes, std::size_t blocks);
  void set_writes(const StagedArrays& arrays);

  Staged staged_;
  TableWrites writes_;  // of the latest stage()
};

}  // namespace quire
