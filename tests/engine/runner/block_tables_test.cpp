#include "engine/runner/block_tables.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "base/error.h"

namespace quire {
namespace {

struct Tables {
  Tables(TableGeometry geometry, int max_slots, ContextParallel cp = {})
      : input(static_cast<std::size_t>(geometry.columns()) * max_slots),
        tables({geometry}, max_slots, {std::span(input)}, cp) {}
  std::vector<std::int32_t> input;
  BlockTables tables;
};

std::vector<std::int64_t> slots_of(const BlockTables& tables, int slot, int position, int count) {
  std::vector<std::int64_t> out(count);
  tables.slot_mapping(0, slot, position, out);
  return out;
}

TEST_CASE("a block becomes its kernel blocks", "[engine][runner]") {
  Tables t({.block_size = 12, .kernel_block_size = 4, .max_blocks = 3}, 2);
  t.tables.append(1, 0, std::vector<BlockId>{2, 0});
  t.tables.gather(std::vector<std::int32_t>{1}, 2);
  CHECK(std::vector(t.input.begin(), t.input.begin() + 6) ==
        std::vector<std::int32_t>{6, 7, 8, 0, 1, 2});
  CHECK(std::vector(t.input.begin() + 9, t.input.end()) == std::vector<std::int32_t>(9, 0));
  CHECK(t.tables.block_at(0, 1, 0) == 2);
  CHECK(t.tables.num_kernel_blocks(0, 1) == 6);
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
  constexpr int kSlots = 2;
  std::vector<std::vector<std::int32_t>> inputs;
  for (const TableGeometry& group : groups) inputs.emplace_back(group.columns() * kSlots);
  BlockTables tables(groups, kSlots, {inputs.begin(), inputs.end()});
  const std::vector<BlockId> states{0, 7}, attention{5, 9}, window{0, 0, 3};
  tables.append(1, 0, states);
  tables.append(1, 1, attention);
  tables.append(1, 2, window);
  tables.gather(std::vector<std::int32_t>{1}, kSlots);

  const int ratio = sizes.block / sizes.kernel;
  REQUIRE(groups[1].columns() == 3 * ratio);
  for (int i = 0; i < ratio; ++i) {
    CHECK(inputs[1][i] == 5 * ratio + i);
    CHECK(inputs[1][ratio + i] == 9 * ratio + i);
  }
  CHECK(tables.block_at(0, 1, 1) == 7);
  CHECK(inputs[0] == std::vector<std::int32_t>{0, 7, 0, 0, 0, 0});
  CHECK(std::vector(inputs[2].begin(), inputs[2].begin() + 6) ==
        std::vector<std::int32_t>{0, 1, 0, 1, 6, 7});
  for (const int position : {0, sizes.kernel - 1, sizes.block - 1, sizes.block, sizes.block + 17}) {
    std::vector<std::int64_t> slot(1);
    tables.slot_mapping(1, 1, position, slot);
    CHECK(slot[0] == attention[position / sizes.block] * sizes.block + position % sizes.block);
  }
}

TEST_CASE("a kernel block size that does not divide is refused", "[engine][runner]") {
  CHECK_THROWS_AS(Tables({.block_size = 16, .kernel_block_size = 6, .max_blocks = 3}, 1), Failure);
}

TEST_CASE("a table that would overflow is refused", "[engine][runner]") {
  Tables t({.block_size = 16, .kernel_block_size = 16, .max_blocks = 2}, 1);
  t.tables.append(0, 0, std::vector<BlockId>{5, 6});
  CHECK_THROWS_AS(t.tables.append(0, 0, std::vector<BlockId>{7}), Failure);
}

TEST_CASE("steady rows are not copied again", "[engine][runner]") {
  Tables t({.block_size = 4, .kernel_block_size = 4, .max_blocks = 8}, 3);
  for (int slot = 0; slot < 3; ++slot) t.tables.append(slot, 0, std::vector<BlockId>{slot + 1});
  const std::vector<std::int32_t> order{2, 0, 1};
  t.tables.gather(order, 3);
  CHECK(t.tables.changed_rows(0).first == 0);
  CHECK(t.tables.changed_rows(0).end == 3);
  t.tables.gather(order, 3);
  CHECK(t.tables.changed_rows(0).empty());
  t.tables.append(0, 0, std::vector<BlockId>{9});
  t.tables.gather(order, 3);
  CHECK(t.tables.changed_rows(0).first == 1);
  CHECK(t.tables.changed_rows(0).end == 2);
  CHECK(t.input[8 + 1] == 9);
}

TEST_CASE("a slot with a new owner is copied anew, even with as many blocks", "[engine][runner]") {
  Tables t({.block_size = 4, .kernel_block_size = 4, .max_blocks = 8}, 1);
  t.tables.append(0, 0, std::vector<BlockId>{5, 6});
  t.tables.gather(std::vector<std::int32_t>{0}, 1);
  t.tables.clear(0);
  t.tables.append(0, 0, std::vector<BlockId>{7, 8});
  t.tables.gather(std::vector<std::int32_t>{0}, 1);
  CHECK(t.input[0] == 7);
  CHECK(t.input[1] == 8);
}

TEST_CASE("context-parallel ranks split a sequence without loss", "[engine][runner]") {
  const int size = GENERATE(1, 2, 3);
  const int interleave = GENERATE(1, 2);
  constexpr int kTokens = 23;
  std::vector<int> owners(kTokens);
  for (int rank = 0; rank < size; ++rank) {
    Tables t({.block_size = 4, .kernel_block_size = 4, .max_blocks = 8}, 1,
             {.size = size, .rank = rank, .interleave = interleave});
    std::vector<BlockId> blocks(8);
    std::iota(blocks.begin(), blocks.end(), 1);
    t.tables.append(0, 0, blocks);
    const auto slots = slots_of(t.tables, 0, 0, kTokens);
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
}  // namespace quire
