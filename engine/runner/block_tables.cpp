#include "engine/runner/block_tables.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

// Rows a power of two apart would share few cache lines.
constexpr std::int64_t kRowPadding = 16;

constexpr auto kPurpose = MemoryPurpose::block_tables;

void check(const TableGeometry& geometry) {
  if (geometry.block_size > 0 && geometry.kernel_block_size > 0 &&
      geometry.block_size % geometry.kernel_block_size == 0) {
    return;
  }
  throw Failure(ErrorCode::internal,
                "kernel block size " + std::to_string(geometry.kernel_block_size) +
                    " does not divide block size " + std::to_string(geometry.block_size));
}

}  // namespace

int local_seq_len(int seq_len, const ContextParallel& cp) {
  const int round = cp.size * cp.interleave;
  const int rest = seq_len % round - cp.rank * cp.interleave;
  return seq_len / round * cp.interleave + std::clamp(rest, 0, cp.interleave);
}

BlockTables::BlockTables(Device& device, Ops& ops, std::vector<TableGeometry> groups,
                         const TableLimits& limits, ContextParallel cp)
    : ops_(ops), limits_(limits), cp_(cp) {
  const auto slots = static_cast<std::size_t>(limits.max_slots);
  std::size_t max_blocks = 0;
  for (const TableGeometry& geometry : groups) {
    check(geometry);
    const std::int64_t columns = geometry.columns(), stride = columns + kRowPadding;
    Group& group = groups_.emplace_back();
    group.geometry = geometry;
    group.counts.resize(slots);
    group.table = device.allocate_zeroed(slots * stride * sizeof(std::int32_t), kPurpose);
    group.rows = device.allocate_zeroed((slots + 1) * columns * sizeof(std::int32_t), kPurpose);
    group.slots = device.allocate(limits.max_tokens * sizeof(std::int64_t), kPurpose);
    on_device_.push_back(
        {.table = TensorView(group.table.data(), DType::i32, {limits.max_slots, columns})
                      .with_strides({stride, 1}),
         .rows = TensorView(group.rows.data(), DType::i32, {limits.max_slots + 1, columns}),
         .slots = TensorView(group.slots.data(), DType::i64, {limits.max_tokens}),
         .ratio = geometry.ratio(),
         .kernel_block_size = geometry.kernel_block_size});
    max_blocks += slots * geometry.max_blocks;
  }
  const std::size_t max_writes = slots * groups_.size();
  for (auto* list : {&staged_.group, &staged_.slot, &staged_.column}) list->reserve(max_writes);
  staged_.first.reserve(max_writes + 1);
  staged_.blocks.reserve(max_blocks);
}

void BlockTables::clear(int slot) {
  assert(staged_.group.empty());
  for (Group& group : groups_) group.counts[slot] = 0;
}

void BlockTables::append(int slot, int group_index, std::span<const BlockId> blocks) {
  if (blocks.empty()) return;
  Group& group = groups_[group_index];
  const int ratio = group.geometry.ratio();
  const int columns = group.geometry.columns();
  std::int32_t& count = group.counts[slot];
  if (count + static_cast<std::int64_t>(blocks.size()) * ratio > columns) {
    throw Failure(ErrorCode::internal, "block table of group " + std::to_string(group_index) +
                                           " is full: " + std::to_string(columns) +
                                           " kernel blocks per request");
  }
  staged_.group.push_back(group_index);
  staged_.slot.push_back(slot);
  staged_.column.push_back(count);
  staged_.first.push_back(static_cast<std::int32_t>(staged_.blocks.size()));
  staged_.blocks.insert(staged_.blocks.end(), blocks.begin(), blocks.end());
  count += static_cast<std::int32_t>(blocks.size()) * ratio;
}

std::size_t BlockTables::max_staged_bytes() const {
  return 3 * StagedPack::bytes_of<std::int32_t>(staged_.group.capacity()) +
         StagedPack::bytes_of<std::int32_t>(staged_.first.capacity()) +
         StagedPack::bytes_of<std::int32_t>(staged_.blocks.capacity());
}

BlockTables::StagedArrays BlockTables::add_arrays(StagedPack& pack, std::size_t writes,
                                                  std::size_t blocks) {
  // One after the other: the order is the layout.
  const auto group = pack.add<std::int32_t>(writes), slot = pack.add<std::int32_t>(writes);
  const auto column = pack.add<std::int32_t>(writes), first = pack.add<std::int32_t>(writes + 1);
  return {group, slot, column, first, pack.add<std::int32_t>(blocks)};
}

void BlockTables::stage(StagedPack& pack) {
  writes_ = {};
  if (staged_.group.empty()) return;
  staged_.first.push_back(static_cast<std::int32_t>(staged_.blocks.size()));
  const StagedArrays arrays = add_arrays(pack, staged_.group.size(), staged_.blocks.size());
  std::ranges::copy(staged_.group, arrays.group.host.begin());
  std::ranges::copy(staged_.slot, arrays.slot.host.begin());
  std::ranges::copy(staged_.column, arrays.column.host.begin());
  std::ranges::copy(staged_.first, arrays.first.host.begin());
  std::ranges::copy(staged_.blocks, arrays.blocks.host.begin());
  set_writes(arrays);
  for (auto* list :
       {&staged_.group, &staged_.slot, &staged_.column, &staged_.first, &staged_.blocks})
    list->clear();
}

void BlockTables::stage(StagedPack& pack, int num_writes, int num_blocks) {
  writes_ = {};
  if (num_writes > 0) set_writes(add_arrays(pack, num_writes, num_blocks));
}

void BlockTables::set_writes(const StagedArrays& arrays) {
  writes_ = {.group = arrays.group.device,
             .slot = arrays.slot.device,
             .column = arrays.column.device,
             .first = arrays.first.device,
             .blocks = arrays.blocks.device};
}

void BlockTables::write(StreamRef stream) {
  if (!writes_.group.empty()) ops_.write_block_tables(on_device_, writes_, stream);
}

void BlockTables::gather(const TableRows& rows, StreamRef stream) {
  ops_.gather_block_tables(on_device_, rows, stream);
}

void BlockTables::map_slots(const TableRows& rows, int num_tokens, StreamRef stream) {
  for (int group = 0; group < num_groups(); ++group)
    on_device_[group].slots = slots(group, num_tokens);
  ops_.slot_mapping(on_device_, rows, cp_, stream);
}

TensorView BlockTables::rows(int group, int num_rows) const {
  return on_device_[group].rows.rows(0, num_rows);
}

TensorView BlockTables::slots(int group, int num_tokens) const {
  return TensorView(groups_[group].slots.data(), DType::i64, {num_tokens});
}

}  // namespace quire
