#include <catch2/catch.hpp>

#include "tests/engine/runner/table_bench.h"
#include "tests/support/conformance.h"

namespace quire {
namespace {

using simdjson::dom::element;

template <class T = std::int32_t>
std::vector<T> ints(element list) {
  std::vector<T> values;
  for (const element value : list.get_array())
    values.push_back(static_cast<T>(std::int64_t(value)));
  return values;
}

int integer(element value) { return static_cast<int>(std::int64_t(value)); }

// Tables of the geometry in `config`.
test::TableBench bench_of(element config, int max_tokens, ContextParallel cp = {}) {
  const auto block_sizes = ints(config["block_sizes"]);
  const auto kernel_sizes = ints(config["kernel_block_sizes"]);
  const auto max_blocks = ints(config["max_blocks"]);
  std::vector<TableGeometry> groups;
  for (std::size_t g = 0; g < block_sizes.size(); ++g)
    groups.push_back({block_sizes[g], kernel_sizes[g], max_blocks[g]});
  return test::TableBench(groups, {integer(config["max_num_reqs"]), max_tokens}, cp);
}

void append(test::TableBench& bench, int slot, element ids_per_group) {
  int group = 0;
  for (const element ids : ids_per_group.get_array())
    bench.append(slot, group++, ints<BlockId>(ids));
}

void check_gather(test::TableBench& bench, element op) {
  const auto slots = ints(op["idx_mapping"]);
  const auto actual = bench.gather(slots, integer(op["num_reqs_padded"]));
  std::size_t group = 0;
  for (const element table : op["expected"]["tables"].get_array()) {
    const int columns = bench.tables().geometry(static_cast<int>(group)).columns();
    std::size_t at = 0;
    for (const element row : table.get_array()) {
      test::expect_equal("columns", row.get_array().size(), columns);
      for (const element id : row.get_array()) {
        const std::int32_t entry = actual[group][at++];
        if (!id.is_null()) test::expect_equal("table entry", std::int64_t(id), entry);
      }
    }
    std::size_t row = 0;
    for (const element count : op["expected"]["num_blocks"].at(group).get_array()) {
      if (row >= slots.size()) break;
      test::expect_equal("num_blocks", std::int64_t(count),
                         bench.tables().num_kernel_blocks(static_cast<int>(group), slots[row++]));
    }
    ++group;
  }
}

TEST_CASE("block tables gather as the vectors say", "[engine][runner][conformance]") {
  test::require_conformance("gather/1", 25, [](element vector_case) {
    test::TableBench bench = bench_of(vector_case["config"], 1);
    for (const element op : vector_case["ops"].get_array()) {
      if (std::string_view(op["op"]) == "gather") {
        check_gather(bench, op);
        continue;
      }
      const int slot = integer(op["req"]);
      if (bool(op["overwrite"])) bench.clear(slot);
      append(bench, slot, op["block_ids"]);
    }
  });
}

TEST_CASE("slots are mapped as the vectors say", "[engine][runner][conformance]") {
  test::require_conformance("slot_mapping/1", 40, [](element vector_case) {
    const element input = vector_case["input"];
    const int num_tokens = integer(input["max_num_batched_tokens"]);
    test::TableBench bench = bench_of(input, num_tokens,
                                      {.size = integer(input["cp_size"]),
                                       .rank = integer(input["cp_rank"]),
                                       .interleave = integer(input["cp_interleave"])});
    int slot = 0;
    for (const element ids : input["request_block_ids"].get_array()) append(bench, slot++, ids);
    const auto query_start = ints(input["query_start_loc"]);
    const auto positions = ints(input["positions"]);
    const auto slots = ints(input["idx_mapping"]);
    std::vector<std::int32_t> first_positions;
    for (std::size_t r = 0; r < slots.size(); ++r) {
      const bool has_tokens = query_start[r] < query_start[r + 1];
      first_positions.push_back(has_tokens ? positions[query_start[r]] : 0);
    }
    const auto actual = bench.map_slots(slots, query_start, first_positions, num_tokens);
    std::size_t group = 0;
    for (const element expected : vector_case["expected"]["slot_mapping"].get_array()) {
      const auto wanted = ints<std::int64_t>(expected);
      test::expect_equal("length", static_cast<std::int64_t>(wanted.size()), num_tokens);
      for (std::size_t i = 0; i < wanted.size(); ++i)
        test::expect_equal("slot of token " + std::to_string(i), wanted[i], actual[group][i]);
      ++group;
    }
  });
}

}  // namespace
}  // namespace quire
