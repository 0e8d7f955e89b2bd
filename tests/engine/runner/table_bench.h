#pragma once
// Block tables on the backend that a test program links, and what they hold as the host sees it.

#include <vector>

#include "engine/runner/block_tables.h"
#include "tests/support/op_test.h"

namespace quire::test {

class TableBench {
 public:
  TableBench(std::vector<TableGeometry> groups, const TableLimits& limits, ContextParallel cp = {});

  const BlockTables& tables() const { return tables_; }
  void clear(int slot);
  void append(int slot, int group, const std::vector<BlockId>& blocks) {
    tables_.append(slot, group, blocks);
  }

  // Rows of the step in this order, then padding: a table per group, [num_rows, columns].
  std::vector<std::vector<std::int32_t>> gather(std::vector<std::int32_t> slots, int num_rows);

  // Of a step whose row r has the tokens query_start[r] … at first_positions[r] …: a mapping per
  // group, [num_tokens].
  std::vector<std::vector<std::int64_t>> map_slots(const std::vector<std::int32_t>& slots,
                                                   const std::vector<std::int32_t>& query_start,
                                                   const std::vector<std::int32_t>& first_positions,
                                                   int num_tokens);

 private:
  void write();
  TensorView ints(const std::vector<std::int32_t>& values);

  OpBackend& backend_;
  OpRun run_;
  BlockTables tables_;
  StagedPack pack_;
};

}  // namespace quire::test
