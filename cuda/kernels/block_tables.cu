// Block tables: what the host staged is written, a step's rows are gathered, its tokens mapped to
// cache slots. A few kilobytes each: bound by latency, so one launch serves all groups.

#include <algorithm>

#include "cuda/device/vec.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kGroupsPerLaunch = 32;  // of a model's: more take another launch

struct Group {
  std::int32_t* table;
  std::int32_t* rows;
  std::int64_t* slots;
  std::int64_t table_stride, rows_stride;
  std::int32_t columns, ratio, kernel_block_size;
};

struct Groups {
  Group at[kGroupsPerLaunch];
};

struct Writes {
  const std::int32_t *group, *slot, *column, *first, *blocks;
};

struct Rows {
  const std::int32_t *slot, *counts, *query_start, *seq_lens;
  std::int32_t num_rows, num_tokens;
};

// One block per write; those of groups in other launches are skipped.
__global__ void __launch_bounds__(kThreads)
    write_kernel(const __grid_constant__ Groups groups, Writes w, int first_group, int num_groups) {
  release_next_kernel();
  await_previous_kernel();
  const int write = blockIdx.x, g = w.group[write] - first_group;
  if (g < 0 || g >= num_groups) return;
  const Group& group = groups.at[g];
  std::int32_t* out = group.table + w.slot[write] * group.table_stride + w.column[write];
  const std::int32_t* blocks = w.blocks + w.first[write];
  const int count = (w.first[write + 1] - w.first[write]) * group.ratio;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    out[i] = blocks[i / group.ratio] * group.ratio + i % group.ratio;
  }
}

// Grid (rows, groups).
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ Groups groups, Rows rows, int first_group) {
  release_next_kernel();
  await_previous_kernel();
  const int row = blockIdx.x, slot = rows.slot[row];
  const Group& group = groups.at[blockIdx.y];
  std::int32_t* out = group.rows + row * group.rows_stride;
  if (slot == kPaddingRow) {
    for (int i = threadIdx.x; i < group.columns; i += kThreads) out[i] = 0;
    return;
  }
  const std::int32_t* from = group.table + slot * group.table_stride;
  const int count = rows.counts[(first_group + blockIdx.y) * rows.num_rows + row];
  for (int i = threadIdx.x; i < count; i += kThreads) out[i] = from[i];
}

__device__ __forceinline__ std::int64_t slot_of(const Group& group, const std::int32_t* table,
                                                int position, const ContextParallel& cp) {
  const int size = group.kernel_block_size, span = size * cp.size;
  const int offset = position % span;
  if (offset / cp.interleave % cp.size != cp.rank) return kPadSlot;
  const int local = offset / (cp.interleave * cp.size) * cp.interleave + offset % cp.interleave;
  return static_cast<std::int64_t>(table[position / span]) * size + local;
}

// Grid (rows + 1, groups): the last one pads what follows the step's tokens.
__global__ void __launch_bounds__(kThreads)
    slot_mapping_kernel(const __grid_constant__ Groups groups, Rows rows, ContextParallel cp) {
  release_next_kernel();
  await_previous_kernel();
  const int row = blockIdx.x;
  const Group& group = groups.at[blockIdx.y];
  const bool is_tail = row == rows.num_rows;
  const int first = rows.query_start[row];
  const int end = is_tail ? rows.num_tokens : rows.query_start[row + 1];
  const int slot = is_tail ? kPaddingRow : rows.slot[row];
  const int position = is_tail ? 0 : rows.seq_lens[row] - (end - first);
  const std::int32_t* table = group.table + (slot == kPaddingRow ? 0 : slot) * group.table_stride;
  for (int t = first + threadIdx.x; t < end; t += kThreads) {
    group.slots[t] =
        slot == kPaddingRow ? kPadSlot : slot_of(group, table, position + t - first, cp);
  }
}

Group device_group(const TableGroup& group) {
  return {.table = static_cast<std::int32_t*>(group.table.data()),
          .rows = static_cast<std::int32_t*>(group.rows.data()),
          .slots = static_cast<std::int64_t*>(group.slots.data()),
          .table_stride = group.table.stride(0),
          .rows_stride = group.rows.stride(0),
          .columns = static_cast<std::int32_t>(group.table.extent(1)),
          .ratio = group.ratio,
          .kernel_block_size = group.kernel_block_size};
}

Rows device_rows(std::span<const TableGroup> groups, const TableRows& rows) {
  return {.slot = static_cast<const std::int32_t*>(rows.slot.data()),
          .counts = static_cast<const std::int32_t*>(rows.counts.data()),
          .query_start = static_cast<const std::int32_t*>(rows.query_start.data()),
          .seq_lens = static_cast<const std::int32_t*>(rows.seq_lens.data()),
          .num_rows = static_cast<std::int32_t>(rows.slot.extent(0)),
          .num_tokens = static_cast<std::int32_t>(groups.front().slots.extent(0))};
}

// go(groups, first, count), for as many at a time as a launch takes.
template <class Go>
void for_groups(std::span<const TableGroup> all, Go go) {
  for (std::size_t first = 0; first < all.size(); first += kGroupsPerLaunch) {
    const std::size_t count = std::min<std::size_t>(all.size() - first, kGroupsPerLaunch);
    Groups groups{};
    for (std::size_t i = 0; i < count; ++i) groups.at[i] = device_group(all[first + i]);
    go(groups, static_cast<int>(first), static_cast<unsigned>(count));
  }
}

}  // namespace

void write_block_tables(std::span<const TableGroup> groups, const TableWrites& writes,
                        StreamRef stream) {
  if (writes.group.numel() == 0) return;
  const Writes w{.group = static_cast<const std::int32_t*>(writes.group.data()),
                 .slot = static_cast<const std::int32_t*>(writes.slot.data()),
                 .column = static_cast<const std::int32_t*>(writes.column.data()),
                 .first = static_cast<const std::int32_t*>(writes.first.data()),
                 .blocks = static_cast<const std::int32_t*>(writes.blocks.data())};
  for_groups(groups, [&](const Groups& part, int first, unsigned count) {
    CUDA_CHECK(launch(write_kernel, dim3(static_cast<unsigned>(writes.group.extent(0))),
                      dim3(kThreads), 0, native(stream), part, w, first, static_cast<int>(count)));
  });
}

void gather_block_tables(std::span<const TableGroup> groups, const TableRows& rows,
                         StreamRef stream) {
  if (groups.empty() || rows.slot.numel() == 0) return;
  const Rows r = device_rows(groups, rows);
  for_groups(groups, [&](const Groups& part, int first, unsigned count) {
    CUDA_CHECK(launch(gather_kernel, dim3(static_cast<unsigned>(r.num_rows), count), dim3(kThreads),
                      0, native(stream), part, r, first));
  });
}

void slot_mapping(std::span<const TableGroup> groups, const TableRows& rows,
                  const ContextParallel& cp, StreamRef stream) {
  if (groups.empty()) return;
  const Rows r = device_rows(groups, rows);
  for_groups(groups, [&](const Groups& part, int, unsigned count) {
    CUDA_CHECK(launch(slot_mapping_kernel, dim3(static_cast<unsigned>(r.num_rows) + 1, count),
                      dim3(kThreads), 0, native(stream), part, r, cp));
  });
}

}  // namespace quire::cuda
