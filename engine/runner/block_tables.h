#pragma once
// Block tables of all KV cache groups on the host: the scheduler's blocks, expanded to the kernels'
// blocks, one row per slot; and per step the rows that the batch runs, in its order. Engine thread
// only. After construction nothing is allocated.

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace quire {

inline constexpr std::int64_t kPadSlot = -1;  // "write nowhere"

struct TableGeometry {
  int block_size = 0;         // tokens
  int kernel_block_size = 0;  // tokens; divides block_size
  int max_blocks = 0;         // of one request

  int ratio() const { return block_size / kernel_block_size; }
  int columns() const { return max_blocks * ratio(); }  // kernel blocks
};

// Ranks that share each sequence: `interleave` tokens in turn.
struct ContextParallel {
  int size = 1;
  int rank = 0;
  int interleave = 1;
};

// Tokens of a sequence that this rank holds.
int local_seq_len(int seq_len, const ContextParallel& cp);

// Rows [first, end) of a group's input table whose contents changed in gather().
struct RowRange {
  int first = 0;
  int end = 0;
  bool empty() const { return first >= end; }
};

class BlockTables {
 public:
  // Throws Failure where a kernel block size does not divide its block size.
  // input_tables: where gather() puts each group's rows, i32 [max_rows, columns()], zeroed.
  BlockTables(std::vector<TableGeometry> groups, int max_slots,
              std::vector<std::span<std::int32_t>> input_tables, ContextParallel cp = {});

  int num_groups() const { return static_cast<int>(groups_.size()); }
  const TableGeometry& geometry(int group) const { return groups_[group].geometry; }

  void clear(int slot);  // all groups
  void append(int slot, int group, std::span<const BlockId> blocks);

  // Puts the tables of `slots`, in that order, into the input rows [0, slots.size()); entries
  // beyond a row's count keep what was there. Rows from there to num_rows_padded become zero. A row
  // that already holds its slot gets only what was appended.
  void gather(std::span<const std::int32_t> slots, int num_rows_padded);
  RowRange changed_rows(int group) const { return groups_[group].changed; }

  // Where tokens [position, position + count) of a request go in a group's cache: kernel block ·
  // kernel_block_size + offset; kPadSlot for tokens of other context-parallel ranks.
  void slot_mapping(int group, int slot, int position, std::span<std::int64_t> out) const;

  // The scheduler's block at an index of the request's table.
  BlockId block_at(int group, int slot, int index) const;
  int num_kernel_blocks(int group, int slot) const { return groups_[group].counts[slot]; }

 private:
  // What an input row was filled from, so that filling it again can be skipped.
  struct InputRow {
    std::int32_t slot = -1;  // -1: the row is zero
    std::uint32_t version = 0;
    std::int32_t count = 0;
  };
  struct Group {
    TableGeometry geometry;
    std::vector<std::int32_t> table;      // [max_slots, stride]: kernel blocks
    std::ptrdiff_t stride = 0;            // ≥ columns
    std::vector<std::int32_t> counts;     // [max_slots]: kernel blocks in use
    std::vector<std::uint32_t> versions;  // [max_slots]: up by one when a row starts anew
    std::span<std::int32_t> input;        // [max_rows, columns]
    std::vector<InputRow> rows;
    RowRange changed;
  };

  static const std::int32_t* row_of(const Group& group, int slot) {
    return group.table.data() + slot * group.stride;
  }
  void fill_row(Group& group, int row, std::int32_t slot);
  void zero_row(Group& group, int row);

  std::vector<Group> groups_;
  ContextParallel cp_;
};

}  // namespace quire
