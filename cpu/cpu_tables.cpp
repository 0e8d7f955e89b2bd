// Block tables: plain loops, and what the CUDA kernels are held to.

#include <algorithm>
#include <cassert>

#include "cpu/operators.h"

namespace quire::cpu {
namespace {

using Ints = View<std::int32_t, 1>;

// Where the tokens of one row go, from its first position on.
void map_row(const TableGroup& group, std::int32_t slot, int position, const ContextParallel& cp,
             std::span<std::int64_t> out) {
  const std::int32_t* table = &group.table.as<std::int32_t, 2>()(slot, 0);
  const int size = group.kernel_block_size;
  const int span = size * cp.size;  // tokens of a sequence that one kernel block stands for
  int index = position / span;
  int offset = position % span;
  for (std::int64_t& result : out) {
    assert(index < group.table.extent(1));
    if (cp.size == 1) {
      result = std::int64_t{table[index]} * size + offset;
    } else if (offset / cp.interleave % cp.size == cp.rank) {
      const int local = offset / (cp.interleave * cp.size) * cp.interleave + offset % cp.interleave;
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

}  // namespace

void write_block_tables(std::span<const TableGroup> groups, const TableWrites& writes) {
  const auto first = writes.first.as<std::int32_t, 1>();
  const auto blocks = writes.blocks.as<std::int32_t, 1>();
  for (std::int64_t w = 0; w < writes.group.extent(0); ++w) {
    const TableGroup& group = groups[writes.group.as<std::int32_t, 1>()(w)];
    const auto table = group.table.as<std::int32_t, 2>();
    std::int32_t* out =
        &table(writes.slot.as<std::int32_t, 1>()(w), writes.column.as<std::int32_t, 1>()(w));
    for (std::int32_t i = first(w); i < first(w + 1); ++i) {
      for (int k = 0; k < group.ratio; ++k) *out++ = blocks(i) * group.ratio + k;
    }
  }
}

void gather_block_tables(std::span<const TableGroup> groups, const TableRows& rows) {
  const Ints slot = rows.slot.as<std::int32_t, 1>();
  const auto counts = rows.counts.as<std::int32_t, 2>();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto table = groups[g].table.as<std::int32_t, 2>();
    const auto out = groups[g].rows.as<std::int32_t, 2>();
    for (std::int64_t r = 0; r < slot.extent[0]; ++r) {
      if (slot(r) == kPaddingRow) {
        std::fill_n(&out(r, 0), out.extent[1], 0);
      } else {
        std::copy_n(&table(slot(r), 0), counts(g, r), &out(r, 0));
      }
    }
  }
}

void slot_mapping(std::span<const TableGroup> groups, const TableRows& rows,
                  const ContextParallel& cp) {
  const Ints slot = rows.slot.as<std::int32_t, 1>();
  const Ints query_start = rows.query_start.as<std::int32_t, 1>();
  const Ints seq_lens = rows.seq_lens.as<std::int32_t, 1>();
  for (const TableGroup& group : groups) {
    const std::span out(group.slots.as<std::int64_t, 1>().data,
                        static_cast<std::size_t>(group.slots.extent(0)));
    std::ranges::fill(out.subspan(query_start(slot.extent[0])), kPadSlot);
    for (std::int64_t r = 0; r < slot.extent[0]; ++r) {
      const int count = query_start(r + 1) - query_start(r);
      const auto tokens = out.subspan(query_start(r), count);
      if (slot(r) == kPaddingRow) {
        std::ranges::fill(tokens, kPadSlot);
      } else {
        map_row(group, slot(r), seq_lens(r) - count, cp, tokens);
      }
    }
  }
}

}  // namespace quire::cpu
