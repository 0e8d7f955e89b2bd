#include "engine/runner/block_tables.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

// Rows a power of two apart would share few cache lines.
constexpr std::ptrdiff_t kRowPadding = 16;

void check(const TableGeometry& geometry) {
  if (geometry.block_size > 0 && geometry.kernel_block_size > 0 &&
      geometry.block_size % geometry.kernel_block_size == 0) {
    return;
  }
  throw Failure(ErrorCode::internal,
                "kernel block size " + std::to_string(geometry.kernel_block_size) +
                    " does not divide block size " + std::to_string(geometry.block_size));
}

void mark(RowRange& range, int row) {
  if (range.empty()) {
    range = {row, row + 1};
  } else {
    range = {std::min(range.first, row), std::max(range.end, row + 1)};
  }
}

}  // namespace

int local_seq_len(int seq_len, const ContextParallel& cp) {
  const int round = cp.size * cp.interleave;
  const int rest = seq_len % round - cp.rank * cp.interleave;
  return seq_len / round * cp.interleave + std::clamp(rest, 0, cp.interleave);
}

BlockTables::BlockTables(std::vector<TableGeometry> groups, int max_slots,
                         std::vector<std::span<std::int32_t>> input_tables, ContextParallel cp)
    : cp_(cp) {
  assert(groups.size() == input_tables.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    check(groups[g]);
    Group& group = groups_.emplace_back();
    group.geometry = groups[g];
    const std::size_t columns = static_cast<std::size_t>(groups[g].columns());
    group.stride = groups[g].columns() + kRowPadding;
    group.table.resize(static_cast<std::size_t>(group.stride * max_slots));
    group.counts.resize(max_slots);
    group.versions.resize(max_slots);
    group.input = input_tables[g];
    group.rows.resize(columns == 0 ? 0 : input_tables[g].size() / columns);
  }
}

void BlockTables::clear(int slot) {
  for (Group& group : groups_) {
    group.counts[slot] = 0;
    ++group.versions[slot];
  }
}

void BlockTables::append(int slot, int group_index, std::span<const BlockId> blocks) {
  Group& group = groups_[group_index];
  const int ratio = group.geometry.ratio();
  const int columns = group.geometry.columns();
  std::int32_t& count = group.counts[slot];
  if (count + static_cast<std::int64_t>(blocks.size()) * ratio > columns) {
    throw Failure(ErrorCode::internal, "block table of group " + std::to_string(group_index) +
                                           " is full: " + std::to_string(columns) +
                                           " kernel blocks per request");
  }
  std::int32_t* out = group.table.data() + slot * group.stride + count;
  for (const BlockId block : blocks) {
    for (int i = 0; i < ratio; ++i) *out++ = block * ratio + i;
  }
  count += static_cast<std::int32_t>(blocks.size()) * ratio;
}

void BlockTables::gather(std::span<const std::int32_t> slots, int num_rows_padded) {
  const int num_rows = static_cast<int>(slots.size());
  for (Group& group : groups_) {
    group.changed = {};
    for (int row = 0; row < num_rows; ++row) fill_row(group, row, slots[row]);
    for (int row = num_rows; row < num_rows_padded; ++row) zero_row(group, row);
  }
}

void BlockTables::fill_row(Group& group, int row, std::int32_t slot) {
  InputRow& input = group.rows[row];
  const bool same = input.slot == slot && input.version == group.versions[slot];
  const std::int32_t first = same ? input.count : 0;
  const std::int32_t count = group.counts[slot];
  if (same && first == count) return;
  const std::ptrdiff_t columns = group.geometry.columns();
  std::copy_n(row_of(group, slot) + first, count - first,
              group.input.data() + row * columns + first);
  input = {slot, group.versions[slot], count};
  mark(group.changed, row);
}

void BlockTables::zero_row(Group& group, int row) {
  if (group.rows[row].slot == -1) return;
  const std::ptrdiff_t columns = group.geometry.columns();
  std::fill_n(group.input.data() + row * columns, columns, 0);
  group.rows[row] = {};
  mark(group.changed, row);
}

void BlockTables::slot_mapping(int group_index, int slot, int position,
                               std::span<std::int64_t> out) const {
  const Group& group = groups_[group_index];
  const int size = group.geometry.kernel_block_size;
  const int span = size * cp_.size;  // tokens of a sequence that one block id stands for
  const std::int32_t* table = row_of(group, slot);
  int index = position / span;
  int offset = position % span;
  for (std::int64_t& result : out) {
    assert(index < group.counts[slot]);
    if (cp_.size == 1) {
      result = std::int64_t{table[index]} * size + offset;
    } else if (offset / cp_.interleave % cp_.size == cp_.rank) {
      const int local =
          offset / (cp_.interleave * cp_.size) * cp_.interleave + offset % cp_.interleave;
      result = std::int64_t{table[index]} * size + local;
    } else {
      result = kPadSlot;
    }
    if (++offset == span) {
      offset = 0;
      ++index;
    }
  }
}

BlockId BlockTables::block_at(int group_index, int slot, int index) const {
  const Group& group = groups_[group_index];
  const int ratio = group.geometry.ratio();
  assert(index * ratio < group.counts[slot]);
  return row_of(group, slot)[static_cast<std::ptrdiff_t>(index) * ratio] / ratio;
}

}  // namespace quire
