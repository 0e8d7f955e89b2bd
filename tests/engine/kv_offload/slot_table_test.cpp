#include <catch2/catch.hpp>
#include <vector>

#include "engine/kv_offload/slot_table.h"

namespace quire {
namespace {

struct Block {
  std::vector<TokenId> tokens;
  BlockContent content(std::uint64_t hash, int group = 0) const {
    return {.group = group, .hash = {hash, ~hash}, .tokens = tokens};
  }
};

TEST_CASE("a slot is found by its hash, its group and its tokens", "[kv_offload]") {
  SlotTable table(3, 4);
  const Block ours{{1, 2, 3, 4}}, others{{1, 2, 3, 5}};
  table.put(1, ours.content(7), 99);
  CHECK(table.find(ours.content(7)) == 1);
  CHECK(table.sum_of(1) == 99);
  CHECK(table.find(ours.content(8)) == SlotTable::kNone);
  CHECK(table.find(ours.content(7, 1)) == SlotTable::kNone);
  CHECK(table.find(others.content(7)) == SlotTable::kNone);  // hashes that collide
  table.put(2, others.content(7), 1);                        // the newer one stays
  CHECK(table.find(others.content(7)) == 2);
  CHECK(table.find(ours.content(7)) == SlotTable::kNone);
  CHECK(table.num_held() == 1);
}

TEST_CASE("the slot that was not used for longest is the oldest", "[kv_offload]") {
  SlotTable table(3, 1);
  const Block block{{1}};
  for (int slot = 0; slot < 3; ++slot)
    table.put(slot, block.content(static_cast<std::uint64_t>(slot)), 0);
  CHECK(table.oldest() == 0);
  table.touch(0);
  CHECK(table.oldest() == 1);
  table.forget(2);
  CHECK(table.oldest() == 2);
  CHECK_FALSE(table.is_held(2));
  table.retire(2);
  CHECK(table.oldest() == 1);
  CHECK(table.after(1) == 0);
  CHECK(table.after(0) == SlotTable::kNone);
  table.touch(2);  // it stays out
  CHECK(table.after(0) == SlotTable::kNone);
  table.clear();
  CHECK(table.num_held() == 0);
  CHECK(table.find(block.content(0)) == SlotTable::kNone);
}

}  // namespace
}  // namespace quire
