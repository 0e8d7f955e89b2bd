#include <catch2/catch.hpp>
#include <numeric>

#include "base/error.h"
#include "tests/engine/runner/table_bench.h"

namespace quire::test {
namespace {

using Row = std::vector<std::int32_t>;
using Slots = std::vector<std::int64_t>;

TableBench bench_of(TableGeometry geometry, int max_slots, ContextParallel cp = {}) {
  return TableBench({geometry}, {.max_slots = max_slots, .max_tokens = 64}, cp);
}

// Cells [first, end) of a gathered table.
Row cells(const Row& table, int first, int end) {
  return {table.begin() + first, table.begin() + end};
}

TEST_CASE("a block becomes its kernel blocks", "[engine][runner]") {
  TableBench bench = bench_of({.block_size = 12, .kernel_block_size = 4, .max_blocks = 3}, 2);
  bench.append(1, 0, {2, 0});
  const Row table = bench.gather({1}, 2)[0];
  CHECK(cells(table, 0, 6) == Row{6, 7, 8, 0, 1, 2});
  CHECK(cells(table, 9, 18) == Row(9, 0));
  CHECK(bench.tables().num_kernel_blocks(0, 1) == 6);
}

TEST_CASE("hybrid blocks become kernel blocks, group by group", "[engine][runner]") {
  struct Sizes {
    int block, kernel;
  };
  const Sizes sizes = GENERATE(values<Sizes>(
      {{528, 16}, {528, 528}, {544, 32}, {640, 64}, {784, 16}, {1056, 32}, {1056, 16}}));
  CAPTURE(sizes.block, sizes.kernel);
  // Group 0 holds states; group 2 keeps a window of small blocks in a wider table.
  const std::vector<TableGeometry> groups{
      {.block_size = sizes.block, .kernel_block_size = sizes.block, .max_blocks = 3},
      {.block_size = sizes.block, .kernel_block_size = sizes.kernel, .max_blocks = 3},
      {.block_size = 64, .kernel_block_size = 32, .max_blocks = 50}};
  TableBench bench(groups, {.max_slots = 2, .max_tokens = 4096});
  const std::vector<BlockId> attention{5, 9};
  bench.append(1, 0, {0, 7});
  bench.append(1, 1, attention);
  bench.append(1, 2, {0, 0, 3});
  const auto tables = bench.gather({1}, 2);

  const int ratio = sizes.block / sizes.kernel;
  REQUIRE(groups[1].columns() == 3 * ratio);
  for (int i = 0; i < ratio; ++i) {
    CHECK(tables[1][i] == 5 * ratio + i);
    CHECK(tables[1][ratio + i] == 9 * ratio + i);
  }
  CHECK(tables[0] == Row{0, 7, 0, 0, 0, 0});
  CHECK(cells(tables[2], 0, 6) == Row{0, 1, 0, 1, 6, 7});
  const int num_tokens = sizes.block + 18;
  const Slots slots = bench.map_slots({1}, {0, num_tokens}, {0}, num_tokens)[1];
  for (const int position : {0, sizes.kernel - 1, sizes.block - 1, sizes.block, sizes.block + 17})
    CHECK(slots[position] ==
          attention[position / sizes.block] * sizes.block + position % sizes.block);
}

TEST_CASE("tables take what was written just before", "[engine][runner]") {
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const auto ints = [&](const Row& values) { return run.upload(tensor_of(values)); };
    const TensorView table = run.upload(tensor_of(Row(8, 0), {2, 4}));
    const TableGroup group{
        .table = table, .rows = table, .slots = {}, .ratio = 2, .kernel_block_size = 4};
    run.ops().write_block_tables({&group, 1},
                                 {.group = ints({0, 0}),
                                  .slot = ints({1, 0}),
                                  .column = ints({0, 2}),
                                  .first = ints({0, 2, 3}),
                                  .blocks = ints({5, 3, 7})},
                                 run.stream());
    const HostTensor got = run.download(table);
    CHECK(Row(got.as<std::int32_t>(), got.as<std::int32_t>() + 8) ==
          Row{0, 0, 14, 15, 10, 11, 6, 7});
  }
}

TEST_CASE("a kernel block size that does not divide is refused", "[engine][runner]") {
  CHECK_THROWS_AS(bench_of({.block_size = 16, .kernel_block_size = 6, .max_blocks = 3}, 1),
                  Failure);
}

TEST_CASE("a table that would overflow is refused", "[engine][runner]") {
  TableBench bench = bench_of({.block_size = 16, .kernel_block_size = 16, .max_blocks = 2}, 1);
  bench.append(0, 0, {5, 6});
  CHECK_THROWS_AS(bench.append(0, 0, {7}), Failure);
}

TEST_CASE("rows follow the step's order and grow where they are", "[engine][runner]") {
  TableBench bench = bench_of({.block_size = 4, .kernel_block_size = 4, .max_blocks = 8}, 3);
  for (int slot = 0; slot < 3; ++slot) bench.append(slot, 0, {slot + 1});
  Row table = bench.gather({2, 0, 1}, 3)[0];
  CHECK(table[0] == 3);
  CHECK(table[8] == 1);
  CHECK(table[16] == 2);
  bench.append(0, 0, {9});
  table = bench.gather({0, 1}, 2)[0];
  CHECK(cells(table, 0, 2) == Row{1, 9});
  CHECK(table[8] == 2);
}

TEST_CASE("a row after a larger step is padding without a trace", "[engine][runner]") {
  TableBench bench = bench_of({.block_size = 4, .kernel_block_size = 4, .max_blocks = 2}, 2);
  bench.append(0, 0, {5, 6});
  bench.append(1, 0, {7, 8});
  CHECK(bench.gather({0, 1}, 2)[0] == Row{5, 6, 7, 8});
  CHECK(bench.gather({1}, 2)[0] == Row{7, 8, 0, 0});
  CHECK(bench.map_slots({1, kPaddingRow}, {0, 3, 4}, {4, 0}, 6)[0] ==
        Slots{32, 33, 34, kPadSlot, kPadSlot, kPadSlot});
}

TEST_CASE("a slot with a new owner forgets the old one", "[engine][runner]") {
  TableBench bench = bench_of({.block_size = 4, .kernel_block_size = 4, .max_blocks = 8}, 1);
  bench.append(0, 0, {5, 6});
  bench.gather({0}, 1);
  bench.clear(0);
  bench.append(0, 0, {7});
  CHECK(bench.gather({0}, 1)[0][0] == 7);
  CHECK(bench.tables().num_kernel_blocks(0, 0) == 1);
  CHECK(bench.map_slots({0}, {0, 4}, {0}, 4)[0] == Slots{28, 29, 30, 31});
}

TEST_CASE("more groups than one launch takes, each with its own width", "[engine][runner]") {
  constexpr int kGroups = 37;
  std::vector<TableGeometry> geometries;
  for (int g = 0; g < kGroups; ++g)
    geometries.push_back(
        {.block_size = 8, .kernel_block_size = g % 2 ? 8 : 4, .max_blocks = 1 + g % 3});
  TableBench bench(geometries, {.max_slots = 2, .max_tokens = 8});
  for (int g = 0; g < kGroups; ++g) bench.append(1, g, {g + 1});
  const auto tables = bench.gather({1}, 2);
  const auto slots = bench.map_slots({1}, {0, 2}, {6}, 3);
  for (int g = 0; g < kGroups; ++g) {
    INFO("group " << g);
    const int ratio = geometries[g].ratio();
    CHECK(tables[g][0] == (g + 1) * ratio);
    CHECK(tables[g][ratio - 1] == (g + 1) * ratio + ratio - 1);
    CHECK(slots[g] == Slots{8 * (g + 1) + 6, 8 * (g + 1) + 7, kPadSlot});
  }
}

TEST_CASE("context-parallel ranks split a sequence without loss", "[engine][runner]") {
  const int size = GENERATE(1, 2, 3);
  const int interleave = GENERATE(1, 2);
  constexpr int kTokens = 23;
  std::vector<int> owners(kTokens);
  for (int rank = 0; rank < size; ++rank) {
    TableBench bench = bench_of({.block_size = 4, .kernel_block_size = 4, .max_blocks = 8}, 1,
                                {.size = size, .rank = rank, .interleave = interleave});
    std::vector<BlockId> blocks(8);
    std::iota(blocks.begin(), blocks.end(), 1);
    bench.append(0, 0, blocks);
    const auto slots = bench.map_slots({0}, {0, kTokens}, {0}, kTokens)[0];
    int local = 0;
    for (int i = 0; i < kTokens; ++i) {
      if (slots[i] == kPadSlot) continue;
      CHECK(slots[i] == 4 + local);  // blocks 1, 2, … hold this rank's tokens densely
      ++owners[i];
      ++local;
    }
    CHECK(local == local_seq_len(kTokens, {size, rank, interleave}));
  }
  CHECK(owners == std::vector<int>(kTokens, 1));
}

}  // namespace
}  // namespace quire::test
