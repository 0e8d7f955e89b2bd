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
