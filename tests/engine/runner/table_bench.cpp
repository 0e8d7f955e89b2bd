#include "tests/engine/runner/table_bench.h"

namespace quire::test {

TableBench::TableBench(std::vector<TableGeometry> groups, const TableLimits& limits,
                       ContextParallel cp)
    : backend_(op_backends().front()),
      run_(backend_),
      tables_(*backend_.device, *backend_.ops, std::move(groups), limits, cp),
      pack_(*backend_.device, MemoryPurpose::step_inputs, 0, tables_.max_staged_bytes()) {}

void TableBench::clear(int slot) {
  write();
  tables_.clear(slot);
}

void TableBench::write() {
  const StreamRef stream = run_.stream();
  pack_.begin();
  tables_.stage(pack_);
  pack_.upload(stream);
  tables_.write(stream);
  run_.device().synchronize(stream);
}

TensorView TableBench::ints(const std::vector<std::int32_t>& values) {
  return run_.upload(tensor_of(values));
}

std::vector<std::vector<std::int32_t>> TableBench::gather(std::vector<std::int32_t> slots,
                                                          int num_rows) {
  write();
  slots.resize(num_rows, kPaddingRow);
  std::vector<std::int32_t> counts;
  for (int g = 0; g < tables_.num_groups(); ++g) {
    for (const std::int32_t slot : slots)
      counts.push_back(slot == kPaddingRow ? 0 : tables_.num_kernel_blocks(g, slot));
  }
  TableRows rows;
  rows.slot = ints(slots);
  rows.counts = ints(counts).reshape({tables_.num_groups(), num_rows});
  rows.query_start = rows.seq_lens = rows.slot;  // not read
  tables_.gather(rows, run_.stream());
  std::vector<std::vector<std::int32_t>> result;
  for (int g = 0; g < tables_.num_groups(); ++g) {
    const HostTensor table = run_.download(tables_.rows(g, num_rows));
    result.emplace_back(table.as<std::int32_t>(), table.as<std::int32_t>() + table.numel());
  }
  return result;
}

std::vector<std::vector<std::int64_t>> TableBench::map_slots(
    const std::vector<std::int32_t>& slots, const std::vector<std::int32_t>& query_start,
    const std::vector<std::int32_t>& first_positions, int num_tokens) {
  write();
  std::vector<std::int32_t> seq_lens;
  for (std::size_t r = 0; r < slots.size(); ++r)
    seq_lens.push_back(first_positions[r] + query_start[r + 1] - query_start[r]);
  for (int g = 0; g < tables_.num_groups(); ++g) {
    const TensorView out = tables_.slots(g, num_tokens);
    const std::vector<std::int64_t> unset(num_tokens, -2);
    run_.device().copy(out.data(), unset.data(), out.bytes(), run_.stream());
    run_.device().synchronize(run_.stream());
  }
  const TableRows rows{.slot = ints(slots),
                       .counts = {},
                       .query_start = ints(query_start),
                       .seq_lens = ints(seq_lens)};
  tables_.map_slots(rows, num_tokens, run_.stream());
  std::vector<std::vector<std::int64_t>> result;
  for (int g = 0; g < tables_.num_groups(); ++g) {
    const HostTensor mapped = run_.download(tables_.slots(g, num_tokens));
    result.emplace_back(mapped.as<std::int64_t>(), mapped.as<std::int64_t>() + num_tokens);
  }
  return result;
}

}  // namespace quire::test
